"""Reasons for which channels wait, read for those that are shown."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.configuration import read_limits
from sqlalchemy_fairqueue.database.stats import (
    COMPETING,
    COUNTED,
    read_competition,
    sample_context,
    with_longest_out,
)
from sqlalchemy_fairqueue.figures.queues import with_reasons
from sqlalchemy_fairqueue.values.reports import with_waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.figures.queues import QueueFigures
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.reports import ChannelDemand, ChannelStats, QueueStats

_RIVALS = 20
"""Channels among which those are found that have most of what a channel waits for."""


def channel_waits(
    connection: Connection,
    queue: Queue,
    channels: Sequence[ChannelStats],
    now: datetime,
    stats: QueueStats | None = None,
) -> Sequence[ChannelStats]:
    """Return channels of a queue with the reasons of their waits.

    It reads about what the statistics of the queue read, a bounded part of that for a single channel, and nothing if no
    channel waits.

    Args:
        connection: Where to ask.
        queue: The queue.
        channels: The channels.
        now: The time by the queue's clock.
        stats: The counts of the queue, if they are known.
    """
    waiting = [one for one in channels if one.undelivered]
    if not waiting:
        return channels
    limits, target = read_limits(connection, queue.schema, queue=queue.name), Target(queue.schema, queue.name)
    if stats is None and len(waiting) == 1 and waiting[0].oldest_ready_at is not None:
        capacity, competition, own = read_competition(connection, target, [waiting[0].channel])
        # Whether it is ready is known, and the reading has only a part of what is.
        own = [replace(one, oldest_ready_at=waiting[0].oldest_ready_at) for one in own]
        told = with_longest_out(connection, target, with_waits(capacity, competition, limits, own, now))
        waits = {one.channel: one.wait for one in told}
        return [replace(one, wait=waits.get(one.channel)) for one in channels]
    counts = queue.stats(connection) if stats is None else stats
    found = with_waits(counts, queue.admin.contention(connection, limit=_RIVALS), limits, channels, now)
    return with_longest_out(connection, target, found)


def figures_now(connection: Connection, queue: Queue, figures: QueueFigures, channels: Iterable[str]) -> QueueFigures:
    """Figures of a queue that are of this moment for some of its channels, where the others may be older.

    A bounded part of the queue is read, as for :meth:`Queue.message`: what pauses and limits the queue and each of the
    channels, since when each waits, and who has the messages that are out. Where more is out, or more channels are
    ready, than that part has, the totals that shares are taken from are those of the figures, and who has most is found
    among both. What is scheduled is that of the figures.

    Args:
        connection: Where to ask.
        queue: The queue.
        figures: Its figures.
        channels: The channels.

    Returns:
        The figures with the limits of the queue, the channels that are named and those that have its messages.
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
    """A channel of a bounded reading with what that does not count: messages due later, and all that are out."""
    if known is None:
        return replace(one, ready=max(1, one.ready)) if one.oldest_ready_at else one
    scheduled = min(known.scheduled, one.ready + one.scheduled)
    ready = max(1, one.ready - scheduled) if one.oldest_ready_at else 0
    leased = one.leased if is_all else max(one.leased, known.leased)
    return replace(one, ready=ready, scheduled=scheduled if ready else one.scheduled, leased=leased)


def _rival(one: ChannelDemand, known: ChannelDemand | None, *, is_all: bool) -> ChannelDemand:
    """A channel that has messages of the queue, of which nothing else is known if the figures do not list it."""
    if known is None:
        return one
    return replace(known, weight=one.weight, leased=one.leased if is_all else max(one.leased, known.leased))
