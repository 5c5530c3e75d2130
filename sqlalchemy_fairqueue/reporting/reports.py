"""The report as a value with figures, objective, replays and advice, and how these become tables and documents."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.times import parsed_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path
    from typing import Self

    from pandas import DataFrame

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, Figures, QueueFigures


def frame_of(rows: Iterable[dict[str, Any]]) -> DataFrame:
    import pandas as pd  # noqa: PLC0415 - a page needs none

    return pd.DataFrame(list(rows))


def row_of(value: Any, without: tuple[str, ...] = (), prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for each in fields(value):
        one, name = getattr(value, each.name), prefix + each.name.rstrip("_")
        if each.name not in without:
            row |= row_of(one, prefix=f"{name}_") if is_dataclass(one) else {name: one}
    return row


def document_of(value: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for each in fields(value):
        one, name = getattr(value, each.name), each.name.rstrip("_")
        if each.name in without:
            continue
        if "timedelta" in str(each.type):
            document[f"{name}_seconds"] = None if one is None else one.total_seconds()
        else:
            document[name] = _documented(one)
    return document


def _documented(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_documented(one) for one in value]
    return document_of(value) if is_dataclass(value) else value


_TEXT = re.compile(r"\s*(p50|p95|p99|max|mean)\s*(?:wait\s*)?<\s*(.+?)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Objective:
    """A target for the waits of each tenant.

    Attributes:
        statistic: p50, p95, p99, max or mean.
        limit: The wait that the statistic must stay below.

    Example:
        >>> target = Objective.parse("p95 < 2 s")
        >>> target.statistic, target.limit, Objective.of("p95 < 2 s") == target
        ('p95', datetime.timedelta(seconds=2), True)
    """

    statistic: str
    limit: timedelta

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an objective as people write it: ``p95 < 2 s``, ``mean<500ms``; raise ValueError for another form."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r:.80} is no objective; give one like 'p95 < 2 s', of p50, p95, p99, max or mean")
        return cls(found[1].lower(), parsed_duration(found[2].replace(" ", "")))

    @classmethod
    def of(cls, value: Self | str | None) -> Self | None:
        """Parse a text as :meth:`parse` does; return an Objective or None unchanged."""
        return cls.parse(value) if isinstance(value, str) else value

    def value(self, channel: ChannelFigures) -> timedelta:
        """Return the statistic of a channel's waits."""
        found: timedelta = channel.mean_wait if self.statistic == "mean" else getattr(channel.wait, self.statistic)
        return found

    def missed(self, channels: Iterable[ChannelFigures]) -> tuple[ChannelFigures, ...]:
        """Return the channels that miss the objective, in descending order of the figure that *statistic* names."""
        late = [one for one in channels if self.value(one) >= self.limit]
        return tuple(sorted(late, key=self.value, reverse=True))

    def __str__(self) -> str:
        return f"{self.statistic} < {self.limit.total_seconds():g} s"


TRUSTED_ERROR = 0.15
"""Forecasts can be trusted if the replay under the recorded policies has at most this ``replay_error``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedQueue:
    """The workers that a replay gives a queue, and how far the replay is from the record.

    Attributes:
        workers: Messages handled at once.
        estimated: Whether *workers* is the capacity that the history shows, instead of the scenario's number.
        backlogged: The backlogged time in which the capacity was measured; zero: it was not measured.
        least_workers: *backlogged* is divided into four equal quarters, one after another. This is the capacity in the
            quarter in which the capacity was least. If the capacity was not measured, this is *workers*.
        greatest_workers: Like *least_workers*, but in the quarter in which the capacity was greatest.
        settings: The settings of the scenario, as text, without the workers.
        replay_error: The mean absolute difference between the replayed and the recorded time from ready to finished, as
            a fraction of the mean recorded time. None: the replay is not under the recorded policies.
        replay_bias: Like *replay_error*, but the mean of signed differences; negative: the replay is faster.
    """

    queue: str
    workers: float
    estimated: bool
    backlogged: timedelta
    least_workers: float
    greatest_workers: float
    policies_known: bool
    settings: str = ""
    replay_error: float | None = None
    replay_bias: float | None = None

    @property
    def trusted(self) -> bool:
        """Whether the replay is close enough to the record to trust forecasts; true without a *replay_error*."""
        return self.replay_error is None or self.replay_error <= TRUSTED_ERROR


@dataclass(frozen=True, slots=True)
class Replay:
    """The figures of a replay, for comparison with the history; the page shows *name*.

    *replayed* has the workers and the error of each queue.
    """

    name: str
    channels: Sequence[ChannelFigures]
    queues: Sequence[QueueFigures] = ()
    replayed: Sequence[ReplayedQueue] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for a queue: a limit for *channel*, the tenant that made others wait, and the limit's effect in a replay.

    The limit should shorten the waits of the others. The others are the channels whose ``denial`` has culprits, since
    they were denied messages of their fair share. If no channel has culprits, the others are the channels that miss the
    objective. *channel* is never one of the others.

    If the limit is for a plan, the others are the channels whose ``denial`` has culprits and the channels that miss the
    objective. But channels that follow the plan are not among the others.

    Attributes:
        before: The mean wait of the others in the replay under the recorded policies.
        own_before: The mean wait of *channel* in the same replay.
        max_concurrency: The limit to set. None: no limit is advised, and *reason* says why.
        after: Like *before*, but in a replay with the limit. None: no limit is advised; likewise *own_after*.
        own_after: Like *own_before*, but in a replay with the limit.
        plan: The plan to set the limit for. None: the limit is for *channel* alone.

    See Also:
        :class:`Report`
    """

    queue: str
    channel: str
    before: timedelta
    own_before: timedelta
    max_concurrency: int | None = None
    after: timedelta | None = None
    own_after: timedelta | None = None
    reason: str = ""
    plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A fairness report, as :func:`report` returns it: its figures, replays and advice.

    Attributes:
        path: The file of the page; None: no page was written.
        advice: For each queue in which one tenant made others wait: a limit for that tenant or its plan, or the
            reason why there is none. Empty if :func:`report` was called with ``replayed=False``.
        labels: Names of tenants on the page, by channel; others keep their names.

    Example:
        >>> queue.configure(engine, history=True)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> made = report(read_history(engine, queue=queue.name), output=None, objective="p95 < 60 s")
        >>> made.late, made.advice  # nobody missed the target, so there is nothing to set
        ((), ())
    """

    title: str
    figures: Figures
    replays: tuple[Replay, ...]
    path: Path | None
    made_at: datetime
    objective: Objective | None = None
    advice: tuple[Advice, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def late(self) -> tuple[ChannelFigures, ...]:
        """The channels that miss *objective*, in descending order of the wait that it limits; empty if it is None."""
        return () if self.objective is None else self.objective.missed(self.figures.channels)

    @property
    def channels(self) -> DataFrame:
        """One row for each channel, the greatest ``denied_wait`` first; nested figures as columns like ``wait_p95``."""
        return frame_of(row_of(one) for one in self.figures.channels)

    @property
    def queues(self) -> DataFrame:
        """One row for each queue."""
        return frame_of(row_of(one, without=("windows",)) for one in self.figures.queues)

    @property
    def windows(self) -> DataFrame:
        """One row for each queue and window of time."""
        return frame_of({"queue": one.queue, **row_of(window)} for one in self.figures.queues for window in one.windows)
