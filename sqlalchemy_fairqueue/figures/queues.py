"""Figures of queues: counts, ages and rates, with those of the channels that wait longest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.configuration import limits_by_queue, queue_settings
from sqlalchemy_fairqueue.database.stats import (
    consumers_by_queue,
    contention_by_queue,
    count_completions,
    read_queues,
    sample_context,
    stats_by_queue,
    with_longest_out,
)
from sqlalchemy_fairqueue.figures.times import age
from sqlalchemy_fairqueue.queue.base import schema_of
from sqlalchemy_fairqueue.values.reports import Contention, with_waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.messages import FairBy
    from sqlalchemy_fairqueue.values.reports import ChannelDemand, ConsumerInfo, QueueStats, SharedLimit

SHOWN = 200
"""Channels of each sort that the figures hold, and consumers."""


@dataclass(frozen=True)
class QueueFigures:
    """A queue at an instant.

    Attributes:
        at: The instant, by the database's clock.
        stats: Its counts.
        contention: The channels that wait longest and those that hold most, with the reasons of their waits.
        consumers: Its consumers, those with the most messages.
        limits: The shared limits that it draws from.
        fair_by: What its channels get equal parts of.
        records_history: Whether it records its history, from which completions are counted.
        completed: Completed attempts since the figures before. None: ``Figures.since`` is, or it records no history.
        completed_per_second: The same a second.
        change_per_second: Growth of the number of its messages a second. None: ``Figures.since`` is.
        completed_by_channel: Completed attempts since the figures before by channel; empty where completed is None.
    """

    at: datetime
    stats: QueueStats
    contention: Contention
    consumers: Sequence[ConsumerInfo]
    limits: Sequence[SharedLimit]
    records_history: bool
    fair_by: FairBy = "messages"
    completed: int | None = None
    completed_per_second: float | None = None
    change_per_second: float | None = None
    completed_by_channel: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.stats.queue

    @property
    def backlog(self) -> int:
        """The messages that no consumer holds."""
        return self.stats.undelivered

    @property
    def messages(self) -> int:
        """Undelivered and leased messages."""
        return self.backlog + self.stats.leased

    @property
    def oldest_ready(self) -> timedelta | None:
        """The wait of the oldest ready message. None: nothing is ready."""
        return age(self.stats.oldest_ready_at, self.at)

    def waited(self, channel: ChannelDemand) -> timedelta | None:
        """Return how long the oldest ready message of a channel waits; None if nothing is ready."""
        return age(channel.oldest_ready_at, self.at)

    @property
    def shortfall(self) -> float:
        """The most that a waiting channel of those lacks of the share that its weight entitles it to, 0 to 1.

        Where it stays high while messages are out, capacity goes to others: by a limit, or since handlers of a few
        channels take long.
        """
        contention = self.contention
        waiting = (one for one in contention.channels if one.oldest_ready_at is not None and one.competes)
        lacking = (contention.entitled(one) - (contention.used(one) or 0.0) for one in waiting)
        return max((0.0, *lacking))


def with_reasons(
    connection: Connection, schema: str | None, figures: QueueFigures, contention: Contention
) -> QueueFigures:
    """Return figures with a contention whose channels have the reasons of their waits."""
    channels = with_waits(figures.stats, contention, figures.limits, contention.channels, figures.at)
    channels = with_longest_out(connection, Target(schema, figures.name), channels)
    return replace(figures, contention=replace(contention, channels=channels))


@dataclass(frozen=True, slots=True)
class Figures:
    """The queues at an instant.

    Attributes:
        at: The instant, by the database's clock.
        since: The time since the figures before. None: these are the first, or those before are too old.
        queues: The queues by name.
        snapshot: The snapshot as PostgreSQL writes it.
    """

    at: datetime
    since: timedelta | None
    queues: Mapping[str, QueueFigures]
    snapshot: str


def read_figures(
    connection: Connection,
    schema: str | None,
    queues: Sequence[Queue] | None,
    previous: Figures | None,
    longest: timedelta,
) -> Figures:
    """Read the figures of queues.

    Args:
        connection: In a REPEATABLE READ transaction, so that all is of one snapshot.
        schema: The schema of the installation.
        queues: The queues. None: all that have channels or are configured.
        previous: The figures that rates are counted from. None: there are none.
        longest: The most time that rates are counted over. Older figures are taken for none: the history since them
            may be long, and its average says nothing of now.
    """
    context = sample_context(connection, schema)
    names = read_queues(connection, schema) if queues is None else [queue.name for queue in queues]
    schema = schema_of(queues) if queues and schema is None else schema
    since = context.at - previous.at if previous else None
    if since is not None and not timedelta(0) < since <= longest:
        since = None
    settings = queue_settings(connection, schema)
    recorded = {name for name in names if name in settings and settings[name].history}
    completed: Mapping[tuple[str, str], int] = {}
    if previous is not None and since is not None and recorded:
        completed = count_completions(connection, schema, before=previous.snapshot, queues=sorted(recorded))
    stats = stats_by_queue(connection, schema, names)
    # Most of thousands of queues are idle, and have neither of these.
    busy = [name for name, one in stats.items() if one.undelivered or one.leased or one.signals]
    contention = contention_by_queue(connection, schema, busy, limit=SHOWN)
    served = [name for name, one in stats.items() if one.consumers]
    consumers = consumers_by_queue(connection, schema, served, limit=SHOWN)
    limits = limits_by_queue(connection, schema, [name for name in names if name in settings])
    found = {}
    for name in names:
        figures = QueueFigures(
            context.at,
            stats[name],
            Contention(queue=name, channels=(), waiting=0, rivals=0, rival_weight=0, leased=0, waits=()),
            consumers.get(name, ()),
            limits.get(name, ()),
            name in recorded,
            settings[name].fair_by if name in settings else "messages",
        )
        if name in contention:
            figures = with_reasons(connection, schema, figures, contention[name])
        if previous is not None and since is not None:
            figures = _with_rates(figures, previous.queues.get(name), since, completed)
        found[name] = figures
    return Figures(context.at, since, found, context.snapshot)


def _with_rates(
    figures: QueueFigures,
    previous: QueueFigures | None,
    since: timedelta,
    completed: Mapping[tuple[str, str], int],
) -> QueueFigures:
    seconds = since.total_seconds()
    by_channel = Counter({channel: count for (queue, channel), count in completed.items() if queue == figures.name})
    return replace(
        figures,
        completed=by_channel.total() if figures.records_history else None,
        completed_per_second=by_channel.total() / seconds if figures.records_history else None,
        change_per_second=(figures.messages - (previous.messages if previous else 0)) / seconds,
        completed_by_channel=by_channel,
    )
