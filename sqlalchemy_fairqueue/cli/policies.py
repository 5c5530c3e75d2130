"""Policies of channels: as options, as tables and as documents."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal, cast

import typer

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.formats import parse_duration, parse_rate, parse_whole
from sqlalchemy_fairqueue.cli.options import option_parser
from sqlalchemy_fairqueue.values import PolicyChanges, policy_fields


def count_option(name: str, help_text: str) -> Any:
    """An option that takes a number from 1."""
    return typer.Option(name, metavar="N", help=help_text, show_default=False)


def limit_option(name: str, help_text: str) -> Any:
    """An option that takes a number from 1, or ``none`` for no limit."""
    parser = option_parser(_count_or_none)
    return typer.Option(name, parser=parser, metavar="N", help=f"{help_text} none: no limit.", show_default=False)


def _count_or_none(words: str) -> int | Literal["none"]:
    if words.strip().lower() == "none":
        return "none"
    try:
        return parse_whole(words.strip())
    except ValueError:
        problem = f"{words!r:.80} is no number; give one from 1, or none for no limit"
        raise ValueError(problem) from None


def limit_changes(
    name: str, given: int | Literal["none"] | None, *, removed: bool, prefix: str = ""
) -> dict[str, int | None]:
    """The change of a limit by ``--NAME`` and ``--no-NAME``; empty where neither is given.

    Raises:
        CommandError: It is set and removed at once.
    """
    check_contradiction(prefix + name, given=given not in {None, "none"}, removed=removed)
    if given is None and not removed:
        return {}
    return {name: None if removed or given == "none" else given}


def flag_option(name: str, help_text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=help_text, show_default=False)


def rate_option(name: str) -> Any:
    """An option that takes a rate."""
    words = "At most so many messages on average: 10/s, 100/min, 1/30s, '50/s, burst 10'; none: no limit."
    return typer.Option(name, parser=option_parser(parse_rate), metavar="RATE", help=words, show_default=False)


def on_full_option(name: str) -> Any:
    """An option that takes the action of a full channel."""
    words = "What an enqueue to a full channel does: raise or drop."
    return typer.Option(name, parser=option_parser(_on_full), metavar="ACTION", help=words, show_default=False)


def aging_option(name: str) -> Any:
    """An option that takes the aging of priorities."""
    words = "How much waiting one step of priority outweighs, like 1m; none: priorities come first."
    parser = option_parser(_duration_or_none)
    return typer.Option(name, parser=parser, metavar="DURATION", help=words, show_default=False)


def _duration_or_none(words: str) -> timedelta | Literal["none"]:
    return "none" if words.strip().lower() == "none" else parse_duration(words)


def _on_full(words: str) -> str:
    if words not in {"raise", "drop"}:
        problem = f"{words!r} is neither raise nor drop"
        raise ValueError(problem)
    return words


def reset_option(name: str) -> Any:
    """An option that takes a field that its plan decides again."""
    words = f"The plan decides this field again: {', '.join(policy_fields())} or all. Repeatable."
    return typer.Option(name, parser=option_parser(_field), metavar="FIELD", help=words, show_default=False)


def _field(words: str) -> str:
    name = words.strip().lower().replace("-", "_")
    if name not in {*policy_fields(), "all"}:
        problem = f"{words!r} is no field of a policy; give {', '.join(policy_fields())} or all"
        raise ValueError(problem)
    return name


def dead_letter_option(name: str) -> Any:
    """An option that takes the retention of dead letters, of all kinds or of one."""
    words = "How long dead letters are kept, like 30d, or none for ever; of one kind by KIND=DURATION. Repeatable."
    parser = option_parser(_dead_letter_retention)
    return typer.Option(name, parser=parser, metavar="[KIND=]DURATION", help=words, show_default=False)


def forget_option(name: str) -> Any:
    """An option that takes the time after which idle channels are forgotten."""
    words = "Channels that have been idle for so long are forgotten, like 30d, or none."
    parser = option_parser(_duration_or_none)
    return typer.Option(name, parser=parser, metavar="DURATION", help=words, show_default=False)


def results_option(name: str) -> Any:
    """An option that takes for how long results of handlers are kept."""
    words = "For how long what handlers return is kept, like 1d, or none."
    return typer.Option(
        name, parser=option_parser(_duration_or_none), metavar="DURATION", help=words, show_default=False
    )


def fair_by_option(name: str) -> Any:
    """An option that takes what channels get equal parts of."""
    words = "What channels get equal parts of, by weight: messages, cost or seconds."
    return typer.Option(name, parser=option_parser(_fair_by), metavar="WORD", help=words, show_default=False)


def _fair_by(words: str) -> str:
    if words not in {"messages", "cost", "seconds"}:
        problem = f"{words!r} is none of messages, cost and seconds"
        raise ValueError(problem)
    return words


def _dead_letter_retention(words: str) -> tuple[str | None, timedelta | None]:
    kind, equals, text = words.rpartition("=")
    retention = None if text.strip().lower() == "none" else parse_duration(text)
    return kind if equals else None, retention


def rate_changes(rate: Rate | Literal["none"] | None, burst: int | None, prefix: str = "") -> PolicyChanges:
    """The change of a rate by ``--rate`` and ``--burst``; empty where neither is given.

    Raises:
        CommandError: There is a burst without a rate.
    """
    if rate is None or rate == "none":
        if burst is not None:
            raise usage_error(
                f"--{prefix}burst {burst} has no rate; give both, such as --{prefix}rate 50/s --{prefix}burst {burst}"
            )
        return {} if rate is None else {"rate": None}
    return {"rate": rate if burst is None else replace(rate, burst=burst)}


NoMaxConcurrency = Annotated[bool, flag_option("--no-max-concurrency", "No limit of messages out at once.")]
RateText = Annotated[Any, rate_option("--rate")]
Burst = Annotated[int | None, count_option("--burst", "Messages that may come in a row before the rate applies.")]


def check_contradiction(name: str, *, given: bool, removed: bool) -> None:
    """Refuse a limit that is set and removed at once."""
    if given and removed:
        option = name.replace("_", "-")
        raise usage_error(f"--{option} and --no-{option} contradict each other; give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options that change the fields of a policy, the same in each command that sets one."""

    max_concurrency: Annotated[Any, limit_option("--max-concurrency", "Most messages of a channel out at once.")] = None
    no_max_concurrency: NoMaxConcurrency = False
    rate: RateText = None
    burst: Burst = None
    weight: Annotated[int | None, count_option("--weight", "Messages a turn.")] = None
    max_backlog: Annotated[Any, limit_option("--max-backlog", "Most undelivered messages.")] = None
    no_max_backlog: Annotated[bool, flag_option("--no-max-backlog", "No bound of undelivered messages.")] = False
    on_full: Annotated[Literal["raise", "drop"] | None, on_full_option("--on-full")] = None
    priority_aging: Annotated[Any, aging_option("--priority-aging")] = None

    def changes(self, prefix: str = "") -> PolicyChanges:
        """The fields that the options change; the names of the options begin with *prefix*.

        Raises:
            CommandError: A limit is set and removed at once, or there is a burst without a rate.
        """
        limits = limit_changes(
            "max_concurrency", self.max_concurrency, removed=self.no_max_concurrency, prefix=prefix
        ) | limit_changes("max_backlog", self.max_backlog, removed=self.no_max_backlog, prefix=prefix)
        changes = cast("PolicyChanges", limits)
        if self.weight is not None:
            changes["weight"] = self.weight
        if self.on_full is not None:
            changes["on_full"] = self.on_full
        if self.priority_aging is not None:
            changes["priority_aging"] = None if self.priority_aging == "none" else self.priority_aging
        return changes | rate_changes(self.rate, self.burst, prefix)


def policy_rows(policy: ChannelPolicy) -> list[tuple[str, object]]:
    """A policy as rows of names and values."""
    return [
        ("max concurrency", policy.max_concurrency),
        ("rate", policy.rate and policy.rate.per_time()),
        ("burst", policy.rate and policy.rate.burst),
        ("weight", policy.weight),
        ("max backlog", policy.max_backlog),
        ("on full", policy.on_full if policy.max_backlog or policy.on_full != "raise" else None),
        *([("priority aging", policy.priority_aging)] if policy.priority_aging else []),
    ]


def policy_document(policy: ChannelPolicy) -> dict[str, object]:
    """A policy as a JSON document: each field by its name."""
    return {name: getattr(policy, name) for name in policy_fields()} | {"rate": rate_document(policy.rate)}


def rate_document(rate: Rate | None) -> dict[str, object] | None:
    """A rate as a JSON document; None for no limit."""
    return None if rate is None else {"interval_seconds": rate.interval.total_seconds(), "burst": rate.burst}
