"""Samples of busy channels, and the changes between two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.configuration import queue_settings
from sqlalchemy_fairqueue.database.engines import REPEATABLE_READ, isolate
from sqlalchemy_fairqueue.database.stats import count_completions, read_channel_stats, sample_context, stats_by_queue
from sqlalchemy_fairqueue.figures.queues import channel_waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Engine

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.reports import ChannelStats, QueueStats

Key = tuple[str, str]

PAGE = 100_000
"""The most channels that one statement returns; for further ones the statement is repeated."""


def messages_of(stats: ChannelStats) -> int:
    return stats.undelivered + stats.leased


@dataclass(frozen=True, slots=True)
class Sample:
    """What ``top`` shows at an instant of the database's clock. The samples that workers keep are of another kind.

    Attributes:
        since: The time since the previous sample. None: there is no previous sample, or the clock was set back.
        channels: The busy channels, and channels that had messages in the previous sample or completed messages since.
            Each channel that waits has the reason of its wait.
        changes: By how many messages each (queue, channel) grows a second; empty if *since* is None.
        rates: Completions a second of each (queue, channel) whose queue has a history; empty if *since* is None.
        snapshot: The snapshot as PostgreSQL writes it; the next sample counts the completions since then.
    """

    at: datetime
    since: timedelta | None
    queues: Sequence[QueueStats]
    channels: Sequence[ChannelStats]
    changes: Mapping[Key, float]
    rates: Mapping[Key, float]
    snapshot: str

    @property
    def total(self) -> int:
        return sum(one.channels for one in self.queues)

    def change(self, stats: ChannelStats) -> float | None:
        return self.changes.get(_key(stats))

    def rate(self, stats: ChannelStats) -> float | None:
        return self.rates.get(_key(stats))


def take_sample(engine: Engine, schema: str | None, queues: Sequence[Queue], previous: Sample | None) -> Sample:
    with engine.connect() as connected:
        connection = isolate(connected, REPEATABLE_READ)
        context = sample_context(connection, schema)
        recorded = [name for name, one in queue_settings(connection, schema).items() if one.history]
        counts = stats_by_queue(connection, schema, [queue.name for queue in queues])
        # Of thousands of queues, most have no channels with messages.
        busy = [queue for queue in queues if _may_be_busy(counts[queue.name])]
        found = {_key(stats): stats for queue in busy for stats in _busy_channels(queue, connection)}
        since = context.at - previous.at if previous and context.at > previous.at else None
        finished: Mapping[Key, int] = {}
        if previous is not None and since is not None and recorded:
            finished = count_completions(connection, schema, before=previous.snapshot, queues=recorded)
        earlier = {_key(one): messages_of(one) for one in previous.channels if messages_of(one)} if previous else {}
        for queue in queues:
            names = [name for of, name in {**earlier, **finished} if of == queue.name and (of, name) not in found]
            found |= {_key(stats): stats for stats in _named_channels(queue, connection, names)}
        channels: list[ChannelStats] = []
        for queue in queues:
            of_queue = [stats for (of, _), stats in found.items() if of == queue.name]
            channels += channel_waits(connection, queue, of_queue, context.at, counts[queue.name])
        connection.rollback()
    changes: dict[Key, float] = {}
    rates: dict[Key, float] = {}
    if since is not None:
        seconds = since.total_seconds()
        changes = {key: (messages_of(stats) - earlier.get(key, 0)) / seconds for key, stats in found.items()}
        rates = {key: finished.get(key, 0) / seconds for key in found if key[0] in recorded}
    return Sample(context.at, since, tuple(counts.values()), channels, changes, rates, context.snapshot)


def _may_be_busy(stats: QueueStats) -> bool:
    return bool(stats.undelivered or stats.leased or stats.signals)


def _named_channels(queue: Queue, connection: Connection, names: Sequence[str]) -> Iterator[ChannelStats]:
    target = Target(queue.schema, queue.name)
    for first in range(0, len(names), PAGE):
        yield from read_channel_stats(connection, target, names[first : first + PAGE], limit=PAGE)


def _busy_channels(queue: Queue, connection: Connection) -> Iterator[ChannelStats]:
    after = None
    while True:
        page = queue.channels(connection, limit=PAGE, after=after, busy=True)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].channel


def _key(stats: ChannelStats) -> Key:
    return stats.queue, stats.channel
