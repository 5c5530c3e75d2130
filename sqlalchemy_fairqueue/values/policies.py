"""Channel policies, changes of them, and the value of an argument that is left as it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values.checks import check_choice, check_count, check_duration
from sqlalchemy_fairqueue.values.rates import Rate, checked_rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from sqlalchemy_fairqueue.values.messages import FairBy

OnFull = Literal["raise", "drop"]

# What people write for a field whose name is not similar.
_MEANT = {
    "interval": "rate",
    "rate_interval": "rate",
    "burst": "rate",
    "rate_burst": "rate",
    "limit": "max_concurrency",
    "bound": "max_backlog",
    "drop_when_full": "on_full",
}
_EXAMPLES = {
    "max_concurrency": "max_concurrency=4",
    "rate": "rate='10/s', or rate=Rate(10, burst=5)",
    "weight": "weight=3",
    "max_backlog": "max_backlog=1000",
    "on_full": "on_full='drop'",
    "priority_aging": "priority_aging=timedelta(minutes=1)",
}


class Unset(Enum):
    """The type of :data:`UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Its name."""
        return self.name


UNSET: Final = Unset.UNSET
"""For arguments where None means something: leave it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFields:
    """The fields of a policy, with the values of a policy without limits: the one list of them in Python.

    :class:`ChannelPolicy` documents and checks them.
    """

    max_concurrency: int | None = None
    rate: Rate | None = None
    weight: int = 1
    max_backlog: int | None = None
    on_full: OnFull = "raise"
    priority_aging: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPolicy(PolicyFields):
    """The service of a channel: its weight, limits and bound.

    Attributes:
        max_concurrency: Most messages of the channel that consumers hold at once, exactly. None: no limit.
        rate: Most messages in a time, as a :class:`Rate` or its text, such as "50/s"; read, it is a Rate. None: no
            rate.
        weight: Messages a turn: a channel of weight 3 gets three times the share of one of weight 1 while both have
            work.
        max_backlog: Most undelivered messages of the channel: an enqueue beyond is answered by on_full. Approximate by
            what transactions in flight enqueue at the same time. Retried and released messages come back above it.
            None: no bound.
        on_full: What an enqueue to a full channel does: "raise" ChannelFull, or "drop" the message, count it, and say
            so in its receipt.
        priority_aging: The waiting time that counts as much as one step of priority, 1 us to 365 days. With ten
            minutes, a message of priority 3 goes before those without a priority that became ready less than 30 minutes
            before it, and after those that have waited for longer. So urgent messages never starve the others of their
            channel. Applies to messages that become ready from then on. None: a message goes before all of a lower
            priority.

    Raises:
        InvalidArgument: A value cannot be kept.
        TypeError: An argument has no name, or the name of no field.

    Example:
        >>> policy = ChannelPolicy(weight=3, max_concurrency=4, rate=Rate(10))
        >>> queue.configure_channel(engine, "customer-7", policy)
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            max_concurrency: int | None = None,
            rate: Rate | str | None = None,
            weight: int = 1,
            max_backlog: int | None = None,
            on_full: OnFull = "raise",
            priority_aging: timedelta | None = None,
        ) -> None: ...

    else:
        # Before __init__, whose errors say less. Type checkers read the signature above.

        def __new__(cls, *positional: object, **named: object) -> Self:
            """Refuse what is no field, with the right spelling."""
            if positional:
                raise TypeError(
                    f"ChannelPolicy has {positional[0]!r:.80} without a name; name each field, such as "
                    f"max_concurrency=4; the fields are {', '.join(policy_fields())}"
                )
            check_field_names("ChannelPolicy", named)
            return object.__new__(cls)

    def __post_init__(self) -> None:
        """Refuse what cannot be kept."""
        if self.max_concurrency is not None:
            check_count("max_concurrency", self.max_concurrency, 1, 2**31 - 1)
        object.__setattr__(self, "rate", checked_rate("rate", self.rate))
        check_count("weight", self.weight, 1, 10_000)
        if self.max_backlog is not None:
            check_count("max_backlog", self.max_backlog, 1, 2**31 - 1)
        check_choice("on_full", self.on_full, ("raise", "drop"))
        if self.priority_aging is not None:
            aging = check_duration("priority_aging", self.priority_aging, timedelta(microseconds=1))
            object.__setattr__(self, "priority_aging", aging)


class PolicyChanges(TypedDict, total=False):
    """Fields of a :class:`ChannelPolicy` to change: those that are missing stay as they are. None lifts a limit."""

    max_concurrency: int | None
    rate: Rate | str | None
    weight: int
    max_backlog: int | None
    on_full: OnFull
    priority_aging: timedelta | None


class QueueLimits(TypedDict, total=False):
    """Limits of a whole queue to change: those that are missing stay as they are. None lifts a limit.

    ``limits`` are the names of the shared limits that the queue draws from.
    """

    max_concurrency: int | None
    rate: Rate | str | None
    limits: list[str] | None


class QueueSettings(TypedDict, total=False):
    """Settings of a queue to change, by the names of their columns: those that are missing stay as they are."""

    history: bool
    history_retention: timedelta | None
    dead_letter_retention: timedelta | None
    dead_letter_retention_by_kind: dict[str, timedelta | None]
    result_retention: timedelta | None
    forget_channels_after: timedelta | None
    fair_by: FairBy
    default_plan: str | None


def policy_fields() -> tuple[str, ...]:
    """The names of a policy's fields."""
    return tuple(field.name for field in fields(PolicyFields))


def policy_changes(where: str, policy: object, changes: Mapping[str, Any]) -> PolicyChanges:
    """The fields to change: all those of a policy, or else the named ones.

    Args:
        where: The name of the call, for errors.
        policy: A ChannelPolicy, which replaces all fields, or None.
        changes: The fields to change. What is checked here is each field: the database checks the whole policy, which
            it alone knows.

    Raises:
        InvalidArgument: Both are given, or neither; or a value cannot be kept.
        TypeError: A name is that of no field.
    """
    check_field_names(where, changes)
    if policy is None:
        if not changes:
            raise InvalidArgument(
                f"{where} has nothing to set; give the fields to change, such as max_backlog=500, or a ChannelPolicy, "
                "which replaces all of them"
            )
        checked = ChannelPolicy(**changes)
        return cast("PolicyChanges", {name: getattr(checked, name) for name in changes})
    if not isinstance(policy, ChannelPolicy):
        raise InvalidArgument(
            f"policy is {policy!r:.80}; give a ChannelPolicy, or fields of one by their names, such as max_backlog=500"
        )
    if changes:
        name, value = next(iter(changes.items()))
        raise InvalidArgument(
            f"{where} has a ChannelPolicy and {name}={value!r:.80}; a ChannelPolicy replaces all fields: "
            "give it alone, or only the fields to change"
        )
    return cast("PolicyChanges", {name: getattr(policy, name) for name in policy_fields()})


def check_field_names(where: str, given: Mapping[str, object]) -> None:
    """Refuse a name that no field of a policy has.

    Raises:
        TypeError: With the name, its value and the field that was probably meant.
    """
    names = policy_fields()
    for name, value in given.items():
        if name not in names:
            raise TypeError(
                f"{where} has {name!s:.80}={value!r:.80}, which is no field of a policy; {_advice(name, value, names)}"
            )


def _advice(name: str, value: object, names: Sequence[str]) -> str:
    close = [_MEANT[name]] if name in _MEANT else get_close_matches(name, names, n=1)
    if not close:
        return f"its fields are {', '.join(names)}"
    field = close[0]
    try:
        ChannelPolicy(**{field: value})  # type: ignore[arg-type]
    except (InvalidArgument, TypeError):
        # The field that is meant takes no such value.
        return f"write {_EXAMPLES.get(field, field)}"
    return f"write {field}={value!r:.80}"
