"""Stats of queues and channels, and the names of all queues. Nothing here changes or locks anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import call, fetch, named, once_a_schema
from sqlalchemy_fairqueue.database.policies import fields_of_columns
from sqlalchemy_fairqueue.times import any_instant, duration
from sqlalchemy_fairqueue.values import ChannelStats, QueueStats, Rate, policy_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target

_INSTANTS = ("paused_at", "oldest_ready_at", "last_dequeue_at", "rate_allows_at", "served_since")
_COUNTS = ("ready", "scheduled", "leased", "dead", "dropped", "current_concurrency", "backlog", "served_cost")
_CHANNEL_COUNTS = (*_COUNTS, *_INSTANTS)


@once_a_schema
def queues_clause(schema: str | None) -> Clause:
    """``fq_queues``."""
    return call(schema, "fq_queues", "fq_queues as queue")


def queues(connection: Connection, schema: str | None) -> list[str]:
    """The names of all queues that have channels or are configured."""
    return [row.queue for row in fetch(connection, queues_clause(schema), {}, "list the queues")]


@once_a_schema
def stats_clause(schema: str | None) -> Clause:
    """``fq_stats``."""
    return call(schema, "fq_stats", "fq_stats.*", queue="text", each="queue")


def stats(connection: Connection, target: Target) -> QueueStats:
    """Return the counts of a queue."""
    return stats_by_queue(connection, target.schema, [target.queue])[target.queue]


def stats_by_queue(connection: Connection, schema: str | None, queues: Sequence[str]) -> dict[str, QueueStats]:
    """Return the counts of queues, by one statement."""
    doing = f"read the stats of {named(queues)}"
    rows = fetch(connection, stats_clause(schema), {"queue": list(queues)}, doing)
    return {queues[row.place - 1]: _queue_stats(queues[row.place - 1], row) for row in rows}


def _queue_stats(queue: str, row: Row[Any]) -> QueueStats:
    columns = _columns(row)
    del columns["place"]
    interval, burst = columns.pop("rate_interval"), columns.pop("rate_burst")
    rate = None if interval is None else Rate.of(duration(interval), burst)
    return QueueStats(queue=queue, rate=rate, **columns)


@once_a_schema
def channel_stats_clause(schema: str | None) -> Clause:
    """``fq_channel_stats``."""
    # The name as bytes: one that the connection's encoding lacks would cost the whole page.
    names = [
        "pg_catalog.convert_to(channel, 'UTF8') as channel",
        "pg_catalog.convert_to(plan, 'UTF8') as plan",
        "pg_catalog.convert_to(problem, 'UTF8') as problem",
        "overridden",
    ]
    columns = ", ".join([*names, *_CHANNEL_COUNTS, "policy"])
    return call(
        schema, "fq_channel_stats", columns, queue="text", channels="text[]", limit="integer", after="text",
        busy="boolean",
    )  # fmt: skip


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
    rows = fetch(
        connection,
        channel_stats_clause(target.schema),
        {
            "queue": target.queue,
            "channels": None if channels is None else list(channels),
            "limit": limit,
            "after": after,
            "busy": busy,
        },
        f"read the stats of the channels of queue {target.queue!r}",
        as_bytes=True,
    )
    return [_channel(target, row) for row in rows]


def _channel(target: Target, row: Row[Any]) -> ChannelStats:
    columns = _columns(row)
    counts = {name: columns[name] for name in _CHANNEL_COUNTS}
    name = str(row.channel, "utf-8")
    return ChannelStats(
        queue=target.queue,
        channel=name,
        plan=None if row.plan is None else str(row.plan, "utf-8"),
        overridden=fields_of_columns(row.overridden),
        problem=None if row.problem is None else str(row.problem, "utf-8"),
        **counts,
        **policy_values(row.policy),
    )


def _columns(row: Row[Any]) -> dict[str, Any]:
    return {
        name: any_instant(value) if name in _INSTANTS and value is not None else value
        for name, value in row._mapping.items()  # noqa: SLF001 - the row's public name for it
    }
