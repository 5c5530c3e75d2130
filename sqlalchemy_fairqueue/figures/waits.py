"""Reasons for which channels wait, read for those that are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import Target
from sqlalchemy_fairqueue.values import ChannelDemand, holding_most, wait_of, wait_of_contender

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.figures.queues import QueueFigures
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values import ChannelStats, Contender, QueueStats, Rival, Wait

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
        found = database.channel_contention(connection, Target(queue.schema, queue.name), one.channel)
        return {one.channel: wait_of_contender(found, limits, now)}
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
    target = Target(queue.schema, queue.name)
    found = database.channel_contentions(connection, target, list(channels), rivals=_RIVALS)
    if not found:
        return figures
    now = database.sample_context(connection, queue.schema).at
    limits = database.limits(connection, queue.schema, queue=queue.name)
    before = {one.channel: one for one in figures.contention.channels}
    whole, is_all = found[0], found[0].leased < database.COUNTED
    demands = {one.contender.channel: _demand(one.contender, before, is_all=is_all) for one in found}
    for rival in whole.channels:
        demands.setdefault(rival.channel, _rival(rival, before, is_all=is_all))
    if not is_all:
        demands = before | demands
    contention = replace(
        figures.contention,
        channels=tuple(sorted(demands.values(), key=lambda one: (one.oldest_ready_at or now, one.channel))),
        leased=whole.leased if is_all else max(whole.leased, figures.contention.leased),
        rival_weight=max(whole.rival_weight, figures.contention.rival_weight)
        if figures.contention.rivals >= database.COMPETING
        else whole.rival_weight,
        served_cost=whole.served_cost,
    )
    counts = replace(
        figures.stats,
        paused_at=whole.paused_at,
        max_concurrency=whole.max_concurrency,
        current_concurrency=whole.current_concurrency,
        rate_allows_at=whole.rate_allows_at,
        consumers=max(figures.stats.consumers, 1) if whole.consumers else 0,
    )
    return replace(figures, at=now, stats=counts, limits=limits, contention=contention)


def _demand(one: Contender, before: Mapping[str, ChannelDemand], *, is_all: bool) -> ChannelDemand:
    known = before.get(one.channel)
    scheduled = min(known.scheduled, one.backlog) if known else 0
    ready = max(1, one.backlog - scheduled) if one.oldest_ready_at else 0
    return ChannelDemand(
        channel=one.channel,
        ready=ready,
        scheduled=scheduled if ready else one.backlog,
        leased=one.leased if is_all or known is None else max(one.leased, known.leased),
        **{name: getattr(one, name) for name in _KNOWN},
    )


_KNOWN = (
    "current_concurrency", "max_concurrency", "rate", "weight", "paused_at", "oldest_ready_at", "last_dequeue_at",
    "rate_allows_at", "served_cost",
)  # fmt: skip


def _rival(one: Rival, before: Mapping[str, ChannelDemand], *, is_all: bool) -> ChannelDemand:
    """A channel that has messages of the queue, of which nothing else is known if the figures do not list it."""
    known = before.get(one.channel)
    if known is not None:
        return replace(known, weight=one.weight, leased=one.leased if is_all else max(one.leased, known.leased))
    return ChannelDemand(
        channel=one.channel, ready=0, scheduled=0, leased=one.leased, current_concurrency=one.leased,
        max_concurrency=None, rate=None, weight=one.weight, paused_at=None, oldest_ready_at=None, last_dequeue_at=None,
        rate_allows_at=None,
    )  # fmt: skip
