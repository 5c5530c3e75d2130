"""The report as a value: its figures as tables, whether or not its page is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.reporting.documents import frame_of, row_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from pandas import DataFrame

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, Figures
    from sqlalchemy_fairqueue.reporting.objectives import Objective
    from sqlalchemy_fairqueue.reporting.replays import Advice, Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report that was made.

    Attributes:
        title: Its title.
        figures: The figures of the history.
        replays: The figures of replays.
        path: The page; None: none was asked for.
        made_at: When it was made.
        objective: The target that the tenants' waits are held against; None: none.
        advice: Policies to set; empty: nobody was denied its share, or nothing was replayed.
        labels: The names of tenants on the page, by channel; others stand as they are.

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
        """The channels that do not keep the objective, the longest wait first."""
        return () if self.objective is None else self.objective.missed(self.figures.channels)

    @property
    def channels(self) -> DataFrame:
        """A row a channel, in descending order of denied wait; nested figures as ``wait_p95`` and the like."""
        return frame_of(row_of(one) for one in self.figures.channels)

    @property
    def queues(self) -> DataFrame:
        """A row a queue."""
        return frame_of(row_of(one, without=("windows",)) for one in self.figures.queues)

    @property
    def windows(self) -> DataFrame:
        """A row a queue and window of time."""
        return frame_of({"queue": one.queue, **row_of(window)} for one in self.figures.queues for window in one.windows)
