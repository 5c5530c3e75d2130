"""Reads how many messages a drained worker leaves in its queues, and why they wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.stats import read_clock
from sqlalchemy_fairqueue.figures.queues import channel_waits
from sqlalchemy_fairqueue.values.reports import LeftoverReason, Leftovers, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue import Queue

_CHANNELS = 1000
"""The most channels of a queue whose reasons are read."""


def read_leftovers(connection: Connection, queues: Iterable[Queue], worker: str) -> tuple[Leftovers, ...]:
    """Return the leftovers of queues that still hold messages; *worker* has stopped, and is not counted as consumer."""
    found = (_leftovers(connection, queue, worker) for queue in queues)
    return tuple(one for one in found if one is not None)


def _leftovers(connection: Connection, queue: Queue, worker: str) -> Leftovers | None:
    stats = queue.stats(connection)
    if not stats.undelivered + stats.leased:
        return None
    busy = queue.channels(connection, busy=True, limit=_CHANNELS)
    now = read_clock(connection, queue.schema)
    # The waits are computed as if a consumer were there, so that they name all other reasons. NO_CONSUMER is reported
    # only for messages that a consumer could take.
    others = any(one.consumer != worker for one in queue.admin.consumers(connection))
    channels = channel_waits(connection, queue, busy, now, replace(stats, consumers=max(stats.consumers, 1)))
    messages: Counter[tuple[Reason, str | None]] = Counter()
    counted: Counter[tuple[Reason, str | None]] = Counter()
    until: dict[tuple[Reason, str | None], datetime] = {}
    for one in channels:
        for own, count in ((Reason.SCHEDULED, one.scheduled), (Reason.ORDERING_KEY, one.held)):
            messages[own, None] += count
            counted[own, None] += bool(count)
        if one.ready and (wait := one.wait):
            is_free = wait.reason in {Reason.NEXT, Reason.CAPACITY, Reason.TURN}
            reason = (Reason.NO_CONSUMER if is_free and not others else wait.reason, wait.limit)
            messages[reason] += one.ready
            counted[reason] += 1
            if wait.until is not None:
                until[reason] = min(wait.until, until.get(reason, wait.until))
    return Leftovers(
        queue=queue.name,
        ready=stats.ready,
        scheduled=stats.scheduled,
        held=stats.held,
        leased=stats.leased,
        reasons=tuple(
            LeftoverReason(reason=key[0], limit=key[1], messages=count, channels=counted[key], until=until.get(key))
            for key, count in messages.most_common()
            if count
        ),
    )
