"""Policies as options, and changed where an option was given: what is not named stays as it is."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import typer
from sqlalchemy import Connection, text

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.cli.failures import usage
from sqlalchemy_fairqueue.cli.options import typed
from sqlalchemy_fairqueue.cli.units import rate, rate_words
from sqlalchemy_fairqueue.statements.building import qualifier
from sqlalchemy_fairqueue.times import duration


def count_option(name: str, words: str) -> Any:
    """An option that takes a number from 1."""
    return typer.Option(name, metavar="N", help=words, show_default=False)


def flag(name: str, words: str) -> Any:
    """An option that stands alone."""
    return typer.Option(name, help=words, show_default=False)


def rate_option(name: str) -> Any:
    """An option that takes a rate."""
    words = "At most so many messages on average: 10/s, 600/m, 1/30s; none: no limit."
    return typer.Option(name, parser=typed(rate), metavar="RATE", help=words, show_default=False)


def on_full_option(name: str) -> Any:
    """An option that takes what a full channel does."""
    words = "What an enqueue to a full channel does: raise or drop."
    return typer.Option(name, parser=typed(_on_full), metavar="ACTION", help=words, show_default=False)


def _on_full(words: str) -> str:
    if words not in {"raise", "drop"}:
        problem = f"{words!r} is neither raise nor drop"
        raise ValueError(problem)
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What of a policy an operator wants otherwise; None and False: nothing."""

    max_concurrency: int | None = None
    no_max_concurrency: bool = False
    interval: timedelta | None = None
    burst: int | None = None
    weight: int | None = None
    max_backlog: int | None = None
    no_max_backlog: bool = False
    on_full: Any = None

    def __bool__(self) -> bool:
        """Whether anything is to be changed."""
        return self != Changes()

    def applied(self, policy: ChannelPolicy) -> ChannelPolicy:
        """The policy with the changes.

        Raises:
            Failure: A limit is set and taken away at once.
        """
        for name in ("max_concurrency", "max_backlog"):
            check_one(name, given=getattr(self, name) is not None, taken_away=getattr(self, f"no_{name}"))
        given: dict[str, Any] = {
            "max_concurrency": self.max_concurrency,
            "release_interval": self.interval,
            "release_burst": self.burst,
            "weight": self.weight,
            "max_backlog": self.max_backlog,
            "on_full": self.on_full,
        }
        wanted = {name: value for name, value in given.items() if value is not None}
        wanted |= {"max_concurrency": None} if self.no_max_concurrency else {}
        wanted |= {"max_backlog": None} if self.no_max_backlog else {}
        return replace(policy, **wanted)


def check_one(name: str, *, given: bool, taken_away: bool) -> None:
    """Refuse a limit that is set and taken away at once."""
    if given and taken_away:
        option = name.replace("_", "-")
        raise usage(f"--{option} and --no-{option} contradict each other; give one of them")


def policy_facts(policy: ChannelPolicy) -> list[tuple[str, object]]:
    """A policy for people."""
    return [
        ("max concurrency", policy.max_concurrency),
        ("rate", rate_words(policy.release_interval)),
        ("burst", policy.release_burst),
        ("weight", policy.weight),
        ("max backlog", policy.max_backlog),
        ("on full", policy.on_full if policy.max_backlog or policy.on_full != "raise" else None),
    ]


def policy_document(policy: ChannelPolicy) -> dict[str, object]:
    """A policy for programs."""
    return {
        "max_concurrency": policy.max_concurrency,
        "release_interval_seconds": policy.release_interval,
        "release_burst": policy.release_burst,
        "weight": policy.weight,
        "max_backlog": policy.max_backlog,
        "on_full": policy.on_full,
    }


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What is configured of a queue.

    Attributes:
        defaults: The policy that new channels start with; None: the one that their first enqueue brings.
        max_concurrency: Most messages of the whole queue in consumers' hands at once.
        history: Whether attempts are recorded.
        retention: How long the record is kept; None: 30 days.
    """

    defaults: ChannelPolicy | None = None
    max_concurrency: int | None = None
    history: bool = False
    retention: timedelta | None = None


def queue_settings(connection: Connection, schema: str, queue: str) -> QueueSettings:
    """What is configured of a queue; all defaults where it never was."""
    query = text(f"select * from {qualifier(schema)}fq_queue where name = :queue")  # noqa: S608 (quoted)
    row = connection.execute(query, {"queue": queue}).one_or_none()
    if row is None:
        return QueueSettings()
    policy = ChannelPolicy(
        max_concurrency=row.max_concurrency,
        release_interval=duration(row.release_interval),
        release_burst=row.release_burst,
        weight=row.weight,
        max_backlog=row.max_backlog,
        on_full="drop" if row.drop_when_full else "raise",
    )
    return QueueSettings(
        policy if row.has_policy else None,
        row.global_max_concurrency,
        row.history,
        None if row.history_retention is None else duration(row.history_retention),
    )
