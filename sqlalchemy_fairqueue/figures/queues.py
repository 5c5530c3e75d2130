"""Reads the figures of queues: counts, ages and rates, and the reasons for which channels wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.configuration import limits_by_queue, queue_settings, read_limits
from sqlalchemy_fairqueue.database.stats import (
    COMPETING,
    COUNTED,
    consumers_by_queue,
    contention_by_queue,
    count_completions,
    read_competition,
    read_queues,
    sample_context,
    stats_by_queue,
    with_longest_out,
)
from sqlalchemy_fairqueue.queue.base import schema_of
from sqlalchemy_fairqueue.values.reports import Contention
from sqlalchemy_fairqueue.values.waits import with_waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.messages import FairBy
    from sqlalchemy_fairqueue.values.reports import (
        ChannelDemand,
        ChannelStats,
        ConsumerInfo,
        MessageDetails,
        QueueStats,
        SharedLimit,
    )

SHOWN = 200
"""The most consumers in the figures of a queue, and the most channels of each sort in ``QueueFigures.contention``."""


_RIVALS = 20
"""The most channels with leased messages that one reading returns. The waits of channels name a few of these."""


def age(since: datetime | None, now: datetime) -> timedelta | None:
    return max(now - since, now - now) if since else None


def behind(stats: QueueStats, now: datetime) -> timedelta:
    """Return how long the oldest ready message has waited; zero if none is deliverable: then workers are not behind."""
    return (age(stats.oldest_ready_at, now) if stats.deliverable else None) or timedelta()


AGAIN = 3
"""From this number on, failures or releases of a message count as a problem, which doctor reports."""


def given_back(message: MessageDetails, now: datetime) -> str | None:
    """Return as text how often a message was released, if this is a problem; otherwise None."""
    times = message.deliveries - message.attempts
    if times < AGAIN or message.error is not None or message.due_at <= now:
        return None
    return f"{times:,} times, uncounted, as by workers that have no handler for kind {message.kind!r}"


@dataclass(frozen=True)
class QueueFigures:
    """A queue at an instant, by the database's clock.

    Attributes:
        contention: The channels that wait longest, the channels with the most leased messages, and channels that have
            scheduled or held messages but no ready one. Each channel that waits has the reason of its wait.
        consumers: The queue's consumers. If there are more than 200 (``SHOWN``), the 200 with the most messages.
        completed: Attempts completed since the previous figures. None: ``Figures.since`` is None, or the queue records
            no history.
        change_per_second: By how many messages the queue grows a second. None: ``Figures.since`` is None.
        completed_by_channel: *completed* by channel; empty if *completed* is None.
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
        return self.stats.undelivered

    @property
    def messages(self) -> int:
        return self.backlog + self.stats.leased

    @property
    def oldest_ready(self) -> timedelta | None:
        return age(self.stats.oldest_ready_at, self.at)

    def waited(self, channel: ChannelDemand) -> timedelta | None:
        return age(channel.oldest_ready_at, self.at)

    @property
    def shortfall(self) -> float:
        """The greatest lack, 0 to 1, of a channel that has ready messages and competes (``ChannelDemand.competes``).

        A channel's lack is the share of the service to which its weight entitles it, minus the share that it gets.
        """
        contention = self.contention
        waiting = (one for one in contention.channels if one.oldest_ready_at is not None and one.competes)
        lacking = (contention.entitled(one) - (contention.used(one) or 0.0) for one in waiting)
        return max((0.0, *lacking))


def with_reasons(
    connection: Connection, schema: str | None, figures: QueueFigures, contention: Contention
) -> QueueFigures:
    channels = with_waits(figures.stats, contention, figures.limits, contention.channels, figures.at)
    channels = with_longest_out(connection, Target(schema, figures.name), channels)
    return replace(figures, contention=replace(contention, channels=channels))


@dataclass(frozen=True, slots=True)
class Figures:
    """The queues at an instant, by the database's clock.

    Attributes:
        since: The time since the previous figures. None: there are none, they are too old, or the clock was set back.
        snapshot: The database's snapshot, as text; the next figures count the completions since then.
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
    """Read the figures of *queues*; if that is None, of all queues that have channels or are configured.

    The connection must be in a REPEATABLE READ transaction, so that all is of one snapshot. Averages per second
    are over the time since *previous*. If that time exceeds *longest*, there are none: much history would be read.
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
    # Thousands of queues are mostly idle: read contention only for busy queues, consumers only for queues with some.
    busy = [name for name, one in stats.items() if one.undelivered or one.leased or one.signals]
    contention = contention_by_queue(connection, schema, busy, limit=SHOWN)
    served = [name for name, one in stats.items() if one.consumers]
    consumers = consumers_by_queue(connection, schema, served, limit=SHOWN)
    limits = limits_by_queue(connection, schema, [name for name in names if name in settings])
    found = {}
    for name in names:
        figures = QueueFigures(
            context.at, stats[name],
            Contention(queue=name, channels=(), waiting=0, rivals=0, rival_weight=0, leased=0, waits=()),
            consumers.get(name, ()), limits.get(name, ()), name in recorded,
            settings[name].fair_by if name in settings else "messages",
        )  # fmt: skip
        if name in contention:
            figures = with_reasons(connection, schema, figures, contention[name])
        if previous is not None and since is not None:
            before, seconds = previous.queues.get(name), since.total_seconds()
            change = (figures.messages - (before.messages if before else 0)) / seconds
            figures = replace(figures, change_per_second=change)
            if name in recorded:
                ended = Counter({channel: count for (queue, channel), count in completed.items() if queue == name})
                total = ended.total()
                counted: dict[str, Any] = {"completed": total, "completed_per_second": total / seconds}
                figures = replace(figures, **counted, completed_by_channel=ended)
        found[name] = figures
    return Figures(context.at, since, found, context.snapshot)


def channel_waits(
    connection: Connection,
    queue: Queue,
    channels: Sequence[ChannelStats],
    now: datetime,
    stats: QueueStats | None = None,
) -> Sequence[ChannelStats]:
    """Return *channels* with the reasons of their waits. *stats* are the queue's counts; None: the call reads them.

    The call also reads the queue's contention. Reading the counts and reading the contention each take about as long as
    one ``queue.stats``. If none of *channels* has undelivered messages, the call reads nothing. For a single channel
    that has a ready message, and without *stats*, the call reads only a bounded part of the queue instead.
    """
    waiting = [one for one in channels if one.undelivered]
    if not waiting:
        return channels
    limits, target = read_limits(connection, queue.schema, queue=queue.name), Target(queue.schema, queue.name)
    if stats is None and len(waiting) == 1 and waiting[0].oldest_ready_at is not None:
        capacity, competition, own = read_competition(connection, target, [waiting[0].channel])
        # The caller knows since when the channel waits; the bounded reading may have missed it.
        own = [replace(one, oldest_ready_at=waiting[0].oldest_ready_at) for one in own]
        told = with_longest_out(connection, target, with_waits(capacity, competition, limits, own, now))
        waits = {one.channel: one.wait for one in told}
        return [replace(one, wait=waits.get(one.channel)) for one in channels]
    counts = queue.stats(connection) if stats is None else stats
    found = with_waits(counts, queue.admin.contention(connection, limit=_RIVALS), limits, channels, now)
    return with_longest_out(connection, target, found)


def figures_now(connection: Connection, queue: Queue, figures: QueueFigures, channels: Iterable[str]) -> QueueFigures:
    """Return *figures* with the figures of *channels* as they are now; figures of other channels may be older.

    The call reads a bounded part of the queue: the pauses and limits of the queue and of *channels*, since when each of
    *channels* waits, and which channels have leased messages. The result lists *channels* and the 20 channels with the
    most leased messages. If none of *channels* exists, *figures* is returned unchanged.

    The call counts at most ``COUNTED`` leased messages. If the queue may have more, the counts can be too low. The
    result then also lists the other channels of *figures*. The queue and each channel then keep at least the number of
    leased messages that *figures* gives for them. If ``COMPETING`` or more channels compete in *figures*, the call may
    not see all of them. Then ``rival_weight``, the sum of their weights, stays at least as high as in *figures*.
    """
    target = Target(queue.schema, queue.name)
    capacity, competition, own = read_competition(connection, target, list(channels), rivals=_RIVALS)
    if not own:
        return figures
    now = sample_context(connection, queue.schema).at
    limits = read_limits(connection, queue.schema, queue=queue.name)
    before = {one.channel: one for one in figures.contention.channels}
    is_all = competition.leased < COUNTED
    known = {one.channel: _with_known(one, before.get(one.channel), is_all=is_all) for one in own}
    for rival in competition.channels:
        known.setdefault(rival.channel, _rival(rival, before.get(rival.channel), is_all=is_all))
    if not is_all:
        known = before | known
    contention = replace(
        figures.contention,
        channels=tuple(sorted(known.values(), key=lambda one: (one.oldest_ready_at or now, one.channel))),
        leased=competition.leased if is_all else max(competition.leased, figures.contention.leased),
        rival_weight=max(competition.rival_weight, figures.contention.rival_weight)
        if figures.contention.rivals >= COMPETING
        else competition.rival_weight,
        served_cost=competition.served_cost,
    )
    held = {one.name: getattr(capacity, one.name) for one in fields(capacity)}
    held["consumers"] = max(figures.stats.consumers, 1) if capacity.consumers else 0
    stats = replace(figures.stats, **held)
    return with_reasons(connection, queue.schema, replace(figures, at=now, stats=stats, limits=limits), contention)


def _with_known(one: ChannelDemand, known: ChannelDemand | None, *, is_all: bool) -> ChannelDemand:
    """Return *one*, as ``read_competition`` read it, with counts corrected by *known*, the channel's earlier figures.

    Two counts of ``read_competition`` can be wrong. If the channel has a ready message, ``ready`` includes the
    channel's scheduled messages. If *is_all* is false, ``leased`` can be too low: ``read_competition`` did not count
    all leased messages of the queue.
    """
    if known is None:
        return replace(one, ready=max(1, one.ready)) if one.oldest_ready_at else one
    scheduled = min(known.scheduled, one.ready + one.scheduled)
    ready = max(1, one.ready - scheduled) if one.oldest_ready_at else 0
    leased = one.leased if is_all else max(one.leased, known.leased)
    return replace(one, ready=ready, scheduled=scheduled if ready else one.scheduled, leased=leased)


def _rival(one: ChannelDemand, known: ChannelDemand | None, *, is_all: bool) -> ChannelDemand:
    if known is None:
        return one
    return replace(known, weight=one.weight, leased=one.leased if is_all else max(one.leased, known.leased))
