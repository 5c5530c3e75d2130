"""Stats of queues and channels, and the context of a sample of them. Nothing here changes or locks anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import Shape, call, named, read, read_by_queue
from sqlalchemy_fairqueue.database.policies import fields_of_columns, policy_columns, policy_values
from sqlalchemy_fairqueue.times import duration, instant
from sqlalchemy_fairqueue.values import ChannelStats, QueueStats, Rate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target

_SAMPLE = Shape(("fq_now as now", "cast(pg_catalog.pg_current_snapshot() as text) as snapshot"))


@dataclass(frozen=True, slots=True)
class SampleContext:
    """The context of a sample.

    Attributes:
        at: The time by the queue's clock.
        snapshot: The snapshot as PostgreSQL writes it.
    """

    at: datetime
    snapshot: str


def now(connection: Connection, schema: str | None) -> datetime:
    """The time by the queue's clock, which is the database's."""
    return instant(call(schema, "fq_now", "read the clock of the queues").value(connection))


def sample_context(connection: Connection, schema: str | None) -> SampleContext:
    """The clock and the snapshot of the transaction. For one snapshot, the transaction is REPEATABLE READ."""
    [row] = call(schema, "fq_now", "read the clock of the queues", _SAMPLE).rows(connection)
    return SampleContext(instant(row.now), row.snapshot)


def completions(
    connection: Connection, schema: str | None, *, before: str, queues: Sequence[str]
) -> dict[tuple[str, str], int]:
    """Completed attempts by queue and channel, recorded since the snapshot *before*, each counted once."""
    doing = "count the completions since the last sample"
    rows = read(connection, schema, "fq_completions", doing, before=before, queues=list(queues))
    return {(row["queue"], row["channel"]): row["attempts"] for row in rows}


def queues(connection: Connection, schema: str | None) -> list[str]:
    """The names of all queues that have channels or are configured."""
    return [queue for (queue,) in call(schema, "fq_queues", "list the queues").rows(connection)]


def stats(connection: Connection, target: Target) -> QueueStats:
    """Return the counts of a queue."""
    return stats_by_queue(connection, target.schema, [target.queue])[target.queue]


def stats_by_queue(connection: Connection, schema: str | None, queues: Sequence[str]) -> dict[str, QueueStats]:
    """Return the counts of queues, by one statement."""
    found = read_by_queue(connection, schema, "fq_stats", f"read the stats of {named(queues)}", queues)
    return {queue: _queue_stats(queue, **row) for queue, [row] in found.items()}


def _queue_stats(queue: str, rate_interval: int | None, rate_burst: int, **counts: Any) -> QueueStats:
    rate = None if rate_interval is None else Rate.of(duration(rate_interval), rate_burst)
    return QueueStats(queue=queue, rate=rate, **counts)


def channel_stats(
    connection: Connection,
    target: Target,
    channels: Sequence[str] | None,
    *,
    limit: int,
    after: str | None = None,
    busy: bool = False,
) -> list[ChannelStats]:
    """The counts and policies of channels, by name.

    Args:
        connection: Where to ask.
        target: The queue.
        channels: Only these. None: all.
        limit: Most channels to return.
        after: The last name of the page before.
        busy: Only those with messages.
    """
    rows = read(
        connection,
        target.schema,
        "fq_channel_stats",
        f"read the stats of the channels of queue {target.queue!r}",
        queue=target.queue,
        channels=None if channels is None else list(channels),
        limit=limit,
        after=after,
        busy=busy,
    )
    return [_channel(target, row) for row in rows]


def _channel(target: Target, row: dict[str, Any]) -> ChannelStats:
    overridden, policy = fields_of_columns(row.pop("overridden")), policy_values(row)
    others = {name: row[name] for name in row.keys() - policy_columns()}
    return ChannelStats(queue=target.queue, overridden=overridden, **others, **policy)
