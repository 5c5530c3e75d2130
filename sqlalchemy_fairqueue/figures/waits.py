"""Reasons for which channels wait, read for those that are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import Target
from sqlalchemy_fairqueue.values import wait_of, wait_of_contender

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values import ChannelStats, QueueStats, Wait

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
        found = database.contention_of(connection, Target(queue.schema, queue.name), one.channel)
        return {one.channel: wait_of_contender(found, limits, now)}
    counts = queue.stats(connection) if stats is None else stats
    contention = queue.contention(connection, limit=_RIVALS)
    waits = {one.channel: wait_of(counts, contention, limits, one, now) for one in waiting}
    return {channel: wait for channel, wait in waits.items() if wait is not None}
