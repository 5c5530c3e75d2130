"""Settings of a queue, each defined once, and changes of them."""

# ruff: noqa: RUF009 - the calls make fields
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final, TypedDict

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import duration, microseconds
from sqlalchemy_fairqueue.values.checks import check_flag, check_name
from sqlalchemy_fairqueue.values.fields import Choice, Count, Definition, Duration, Rate, RateOf, definitions
from sqlalchemy_fairqueue.values.messages import FairBy, OnDead  # noqa: TC001 - get_type_hints reads them
from sqlalchemy_fairqueue.values.policies import ChannelPolicy, PolicyChanges, policy_changes, policy_values

DeadLetterRetention = timedelta | Mapping[str, timedelta | None] | Mapping[str | None, timedelta | None] | None
_DEQUEUES = "for messages that are delivered from the commit on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Definition):
    """A field that is True or False, written as yes or no."""

    def _checked(self, name: str, value: Any) -> Any:
        check_flag(name, value)
        return value

    def _parsed(self, words: str) -> bool:
        if words not in {"yes", "no"}:
            raise ValueError(f"{words!r:.80} is neither yes nor no")
        return words == "yes"

    def _text(self, value: Any) -> str:
        return "yes" if value else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Definition):
    """A field whose value is the name of a plan."""

    def _parsed(self, words: str) -> str:
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Names(Definition):
    """A field whose value is a list of names; *what* tells what they name."""

    what: str = "shared limit"

    def _checked(self, name: str, value: Any) -> list[str] | None:
        if isinstance(value, str) or not isinstance(value, Collection):
            raise InvalidArgument(
                f"{name} is {value!r:.80}; give the names of {self.what}s as a list, or None for none"
            )
        names = list(value)
        for one in names:
            check_name(self.what.removeprefix("shared "), one)
        return names or None

    def _parsed(self, words: str) -> list[str]:
        return [word.strip() for word in words.split(",")]

    def _text(self, value: Any) -> str:
        return ", ".join(value) or "none"

    def value_of(self, name: str, columns: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(columns[name] or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationByKind(Duration):
    """A field with one time for all kinds of messages, or a dict of times by kind; the key None means all others."""

    metavar: ClassVar[str] = "[KIND=]DURATION"

    def checked(self, name: str, value: object) -> Any:
        if not isinstance(value, Mapping):
            return Duration.checked(self, name, value)
        for kind, time in value.items():
            if kind is not None:
                check_name(f"kind of {name}", kind)
            Duration.checked(self, f"{name} of kind {kind!r:.80}", time)
        return dict(value)

    def parsed(self, text: str) -> Any:
        kind, equals, words = text.rpartition("=")
        time = Duration.parsed(self, words)
        return {kind: time} if equals else time

    def columns(self, name: str) -> tuple[str, ...]:
        return name, f"{name}_by_kind"

    def column_values(self, name: str, value: Any) -> dict[str, object]:
        """Return only the columns that change: the time for all kinds, the times of single kinds, or both."""
        kinds = dict(value) if isinstance(value, Mapping) else {None: value}
        times = {kind: None if time is None else microseconds(time) for kind, time in kinds.items()}
        columns: dict[str, object] = {name: times.pop(None)} if None in times else {}
        return columns | ({f"{name}_by_kind": times} if isinstance(value, Mapping) else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOf(Definition):
    """A field whose value is a policy, or a dict of the policy's fields to change, stored as a JSON object."""

    def checked(self, name: str, value: object) -> PolicyChanges:
        if isinstance(value, ChannelPolicy):
            return policy_changes(name, value, {})
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"{name} is {value!r:.80}; give a ChannelPolicy, or a dict of the fields to change")
        return policy_changes(name, None, value)

    def _parsed(self, words: str) -> Any:
        raise ValueError(f"{words!r:.80} is no policy")

    def value_of(self, name: str, columns: Mapping[str, Any]) -> ChannelPolicy | None:
        return None if columns[name] is None else ChannelPolicy(**policy_values(columns[name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of a queue, as in ``Queue.configure``. Each default is the value in a queue never configured."""

    defaults: ChannelPolicy | None = PolicyOf(
        help="The policy that new channels start with.",
        none="that of the Queue object whose enqueue creates the channel",
    ).field(None)
    max_concurrency: int | None = Count(
        help="The most leased messages of the queue at once, kept exactly.", none="no limit"
    ).field(None)
    max_cost_out: int | None = Count(
        help="The most that the leased messages of the queue cost together. A message that costs more goes alone.",
        none="no limit",
    ).field(None)
    rate: Rate | None = RateOf(
        help="The most messages, or the most cost, of the queue in a time: 10/s, 100000/min of cost.",
        none="no rate",
    ).field(None)
    limits: Sequence[str] = Names(
        help="The shared limits that the queue draws from, beside its own.", none="none"
    ).field(())
    fair_by: FairBy = Choice(
        words=("messages", "cost", "seconds"),
        help="What is shared among the channels by their weights: messages, cost or seconds.",
    ).field("messages")
    history: bool = Flag(help="Record every attempt.", holds=_DEQUEUES).field(False)
    history_retention: timedelta | None = Duration(
        least=timedelta(days=1), help="How long the history is kept, like 30d.", none="30 days"
    ).field(None)
    dead_letter_retention: timedelta | None = DurationByKind(
        help="How long dead letters are kept, like 30d; of one kind by KIND=DURATION.", none="for ever"
    ).field(None)
    dead_letter_retention_by_kind: Mapping[str, timedelta] = field(default_factory=dict)
    result_retention: timedelta | None = Duration(
        help="How long what handlers return is kept, like 1d.",
        none="not at all",
        holds="for messages that are delivered and completed from the commit on",
    ).field(None)
    forget_channels_after: timedelta | None = Duration(
        help="Channels that have been idle for so long are forgotten, like 90d.", none="never"
    ).field(timedelta(days=30))
    default_plan: str | None = Name(
        help="The plan that new channels follow.", none="none", holds="for channels made from then on"
    ).field(None)
    on_dead: OnDead = Choice(
        words=("continue", "hold"),
        help="Whether messages of an ordering key go on behind a dead letter, or wait for its redrive or purge.",
        holds="for messages that die from then on",
    ).field("continue")
    on_dead_kinds: Sequence[str] = Names(
        what="kind",
        help="The kinds whose dead letters are followed by a message; workers with handlers of these add theirs.",
        none="none",
        holds="for messages that die from then on",
    ).field(())

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> QueueSettings:
        by_kind = columns["dead_letter_retention_by_kind"] or {}
        return cls(
            **{name: definition.value_of(name, columns) for name, definition in SETTINGS.items()},
            dead_letter_retention_by_kind={kind: duration(time) for kind, time in by_kind.items()},
        )


SETTINGS: Final[Mapping[str, Definition]] = definitions(QueueSettings)


class QueueLimits(TypedDict, total=False):
    """Limits of a whole queue to change; limits that are not given stay as they are. None lifts a limit."""

    max_concurrency: int | None
    max_cost_out: int | None
    rate: Rate | str | None
    limits: Collection[str] | None


LIMITS: Final = frozenset(QueueLimits.__annotations__)


class QueueChanges(QueueLimits, total=False):
    """Settings of a queue to change; settings that are not given stay as they are."""

    defaults: ChannelPolicy | PolicyChanges
    fair_by: FairBy
    history: bool
    history_retention: timedelta | None
    dead_letter_retention: DeadLetterRetention
    result_retention: timedelta | None
    forget_channels_after: timedelta | None
    default_plan: str | None
    on_dead: OnDead
    on_dead_kinds: Collection[str] | None


def setting_changes(where: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := next((name for name in changes if name not in SETTINGS), None):
        raise TypeError(f"{where} has {unknown}, which is none of its settings: {', '.join(SETTINGS)}")
    if not changes:
        raise InvalidArgument(f"{where} has nothing to set; give one or more of {', '.join(SETTINGS)}")
    return {name: SETTINGS[name].checked(name, value) for name, value in changes.items()}
