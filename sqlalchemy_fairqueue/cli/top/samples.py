"""Samples of all channels, and the changes between two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.sql_files import query
from sqlalchemy_fairqueue.cli.stats import MAX_CHANNELS, age
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue import Queue
    from sqlalchemy_fairqueue.cli.installation import Installation
    from sqlalchemy_fairqueue.values import ChannelStats

Key = tuple[str, str]

PAGE = MAX_CHANNELS
"""Channels that one statement returns; a queue may have more."""


@dataclass(frozen=True, slots=True)
class ChannelSample:
    """A channel, and how it changed since the previous sample.

    Attributes:
        stats: Its counts.
        oldest: How long the oldest ready message waits.
        change: Growth of the number of its messages a second. None: it is the first sample.
        rate: Completions a second. None: it is the first sample, or its queue records no history.
    """

    stats: ChannelStats
    oldest: timedelta | None
    change: float | None
    rate: float | None

    @property
    def messages(self) -> int:
        """Ready, scheduled and leased."""
        return messages_of(self.stats)


def messages_of(stats: ChannelStats) -> int:
    """Ready, scheduled and leased."""
    return stats.ready + stats.scheduled + stats.leased


@dataclass(frozen=True, slots=True)
class Sample:
    """All channels at an instant.

    Attributes:
        at: The instant, by the database's clock.
        since: The time since the previous sample; None: it is the first.
        channels: The channels.
        snapshot: The snapshot as PostgreSQL writes it.
    """

    at: datetime
    since: timedelta | None
    channels: Sequence[ChannelSample]
    snapshot: str


def take_sample(installation: Installation, queues: Sequence[Queue], previous: Sample | None) -> Sample:
    """Read the counts of every channel of the queues, in one snapshot."""
    with installation.target.engine.connect() as connected:
        connection = connected.execution_options(isolation_level="REPEATABLE READ")
        context = connection.execute(query("top/queries/snapshot.sql", installation.schema)).one()
        now = instant(context.now)
        found = [stats for queue in queues for stats in _channels(queue, connection)]
        since = now - previous.at if previous and now > previous.at else None
        finished: Mapping[Key, int] = {}
        if previous is not None and since is not None and context.recorded:
            completions = query("top/queries/completions.sql", installation.schema)
            rows = connection.execute(completions, {"before": previous.snapshot, "queues": context.recorded})
            finished = {(row.queue, row.channel): row.attempts for row in rows}
        connection.rollback()
    earlier = {_key(channel.stats): channel.messages for channel in previous.channels} if previous else {}
    recorded = set(context.recorded)
    channels = []
    for stats in found:
        change = rate = None
        if since is not None:
            change = (messages_of(stats) - earlier.get(_key(stats), 0)) / since.total_seconds()
            if stats.queue in recorded:
                rate = finished.get(_key(stats), 0) / since.total_seconds()
        channels.append(ChannelSample(stats, age(stats.oldest_ready_at, now), change, rate))
    return Sample(now, since, channels, context.snapshot)


def _channels(queue: Queue, connection: Connection) -> Iterator[ChannelStats]:
    """Every channel of a queue by name, page by page."""
    after = None
    while True:
        page = queue.channels(connection, limit=PAGE, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].channel


def _key(stats: ChannelStats) -> Key:
    return stats.queue, stats.channel
