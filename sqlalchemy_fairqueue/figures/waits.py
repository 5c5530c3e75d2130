"""Reasons for which channels wait, read for those that are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import Target
from sqlalchemy_fairqueue.values import holding_most, wait_of, wait_of_ready

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.figures.queues import QueueFigures
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values import ChannelDemand, ChannelStats, QueueStats, Wait

_RIVALS = 20
"""Channels among which those are found that have most of what a channel waits for."""


def channel_waits(
    connection: Connection,
    queue: Queue,
    channels: Iterable[ChannelStats],
    now: datetime,
    stats: QueueStats | None = None,
) -> Mapping[str, Wait]:
    """Reasons of the waits of a queue, by channel; channels without ready or scheduled messages are left out.

    It reads about what the statistics of the queue read, a bounded part of that for a single channel, and nothing if no
    channel waits.

    Args:
        connection: Where to ask.
        queue: The queue.
        channels: The channels.
        now: The time by the queue's clock.
        stats: The counts of the queue, if they are known.
    """
    waiting = [one for one in channels if one.ready or one.scheduled]
    if not waiting:
        return {}
    limits = database.limits(connection, queue.schema, queue=queue.name)
    if stats is None and len(waiting) == 1 and waiting[0].oldest_ready_at is not None:
        [one] = waiting
        found = database.contention_of(connection, Target(queue.schema, queue.name), [one.channel], limit=_RIVALS)
        demand = next((other for other in found.channels if other.channel == one.channel), one)
        return {one.channel: wait_of_ready(found, found, limits, demand, now)}
    counts = queue.stats(connection) if stats is None else stats
    contention = queue.admin.contention(connection, limit=_RIVALS)
    holding = holding_most(contention)
    waits = {one.channel: wait_of(counts, contention, limits, one, now, holding=holding) for one in waiting}
    return {channel: wait for channel, wait in waits.items() if wait is not None}


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
    names = list(channels)
    found = database.contention_of(connection, Target(queue.schema, queue.name), names, limit=_RIVALS)
    if not any(one.channel in names for one in found.channels):
        return figures
    now = database.sample_context(connection, queue.schema).at
    limits = database.limits(connection, queue.schema, queue=queue.name)
    before = {one.channel: one for one in figures.contention.channels}
    is_all = found.leased < database.COUNTED
    demands = {one.channel: _demand(one, before.get(one.channel), is_all=is_all) for one in found.channels}
    if not is_all:
        demands = before | demands
    contention = replace(
        figures.contention,
        channels=tuple(sorted(demands.values(), key=lambda one: (one.oldest_ready_at or now, one.channel))),
        leased=found.leased if is_all else max(found.leased, figures.contention.leased),
        rival_weight=max(found.rival_weight, figures.contention.rival_weight)
        if figures.contention.rivals >= database.COMPETING
        else found.rival_weight,
        served_cost=found.served_cost,
    )
    counts = replace(
        figures.stats,
        paused_at=found.paused_at,
        max_concurrency=found.max_concurrency,
        current_concurrency=found.current_concurrency,
        rate_allows_at=found.rate_allows_at,
        consumers=max(figures.stats.consumers, 1) if found.consumers else 0,
    )
    return replace(figures, at=now, stats=counts, limits=limits, contention=contention)


def _demand(one: ChannelDemand, known: ChannelDemand | None, *, is_all: bool) -> ChannelDemand:
    """A channel of the bounded part, with what is known of its scheduled messages, and of those beyond the bound."""
    scheduled = min(known.scheduled, one.ready) if known else 0
    ready = max(1, one.ready - scheduled) if one.oldest_ready_at else 0
    return replace(
        one,
        ready=ready,
        scheduled=scheduled if ready else one.ready,
        leased=one.leased if is_all or known is None else max(one.leased, known.leased),
    )
