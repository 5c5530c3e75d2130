"""Reasons for which channels wait, read for those that are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import Target
from sqlalchemy_fairqueue.values import Reason, Wait, tenant_of, wait_of, wait_of_contender

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.figures.queues import QueueFigures
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values import ChannelStats, QueueStats
    from sqlalchemy_fairqueue.values.waits import Tenant

_RIVALS = 20
"""Channels among which those are found that have most of what a channel waits for."""
_BY_SHARE = frozenset({Reason.CAPACITY, Reason.TURN})


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
        found = database.contention_of(connection, Target(queue.schema, queue.name), one.channel)
        return {one.channel: wait_of_contender(found, limits, now)}
    counts = queue.stats(connection) if stats is None else stats
    contention = queue.contention(connection, limit=_RIVALS)
    waits = {one.channel: wait_of(counts, contention, limits, one, now) for one in waiting}
    return {channel: wait for channel, wait in waits.items() if wait is not None}


def tenant_now(
    connection: Connection, queue: Queue, figures: QueueFigures, stats: ChannelStats
) -> tuple[QueueFigures, Tenant]:
    """A channel with the reason of its wait at this moment, where the figures of its queue are older than that.

    A bounded part of the queue is read, as for :meth:`Queue.message`: what pauses and limits the queue, and who has its
    messages. The shares are those of the figures, and so is the choice between "others' turn" and "capacity".

    Args:
        connection: Where to ask.
        queue: The queue.
        figures: Its figures.
        stats: The channel.

    Returns:
        The figures with what holds the queue back at this moment, and the channel.
    """
    tenant = tenant_of(figures.stats, figures.contention, figures.limits, stats, figures.at)
    if stats.oldest_ready_at is None:
        return figures, tenant
    now = database.sample_context(connection, queue.schema).at
    found = database.contention_of(connection, Target(queue.schema, queue.name), stats.channel)
    limits = database.limits(connection, queue.schema, queue=queue.name)
    wait: Wait | None = wait_of_contender(found, limits, now)
    if wait and wait.reason in _BY_SHARE and tenant.reason in _BY_SHARE:
        wait = tenant.waits_for
    counts = replace(
        figures.stats,
        paused_at=found.paused_at,
        max_concurrency=found.max_concurrency,
        current_concurrency=found.current_concurrency,
        rate_allows_at=found.rate_allows_at,
        consumers=max(figures.stats.consumers, 1) if found.consumers else 0,
    )
    since = max(now - stats.oldest_ready_at, now - now)
    return replace(figures, at=now, stats=counts, limits=limits), replace(tenant, wait=since, waits_for=wait)
