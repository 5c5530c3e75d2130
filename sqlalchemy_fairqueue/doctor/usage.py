"""Counts the usage of channels in a month from the history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.doctor.findings import query
from sqlalchemy_fairqueue.times import any_instant, duration, instant_microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class ChannelUsage:
    """The usage of a queue by a channel: completed messages, and the number, time and cost of all ended attempts."""

    queue: str
    channel: str
    messages: int
    attempts: int
    time: timedelta
    cost: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a month in UTC, from *since* up to *until*, exclusive.

    The history was pruned until *pruned_until*, so earlier attempts are not counted; None: none of the month is lost.
    """

    since: datetime
    until: datetime
    pruned_until: datetime | None
    channels: Sequence[ChannelUsage]


def read_usage(connection: Connection, schema: str | None, month: datetime, queue: str | None = None) -> Usage:
    """Count channels' usage in the UTC month that contains the instant *month*. If *queue* is None, count all queues.

    Only attempts in the history count. The role must be allowed to read ``fq_history`` and ``fq_pruned_history``.
    """
    since = month.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    until = (since + timedelta(days=31)).replace(day=1)
    period = {"since": instant_microseconds(since), "until": instant_microseconds(until)}
    rows = connection.execute(query("usage", schema), period | {"queue": queue})
    channels = [
        ChannelUsage(row.queue, row.channel, row.messages, row.attempts, duration(row.time), row.cost) for row in rows
    ]
    # Read afterwards, so that it includes what was pruned in between.
    pruned = connection.execute(query("pruned_until", schema), period).scalar()
    return Usage(since, until, None if pruned is None else min(any_instant(pruned), until), channels)
