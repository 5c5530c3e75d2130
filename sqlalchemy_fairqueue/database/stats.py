"""Reads statistics of queues, channels and consumers, how channels compete, and which workers were asked to stop."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy_fairqueue.database.calls import Row, Shape, Target, call, read, read_by_queue
from sqlalchemy_fairqueue.database.deliveries import LONGEST_WAIT
from sqlalchemy_fairqueue.texts import library_version
from sqlalchemy_fairqueue.times import any_instant, duration, instant, microseconds
from sqlalchemy_fairqueue.values.policies import policy_values
from sqlalchemy_fairqueue.values.reports import (
    HANDLER_BOUNDS,
    ChannelDemand,
    ChannelStats,
    Competition,
    ConsumerInfo,
    Contention,
    HandlerTimes,
    HeldMessage,
    LongestOut,
    QueueCapacity,
    QueueStats,
    Reason,
    Trend,
    TrendPoint,
)
from sqlalchemy_fairqueue.values.waits import TAKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection


_Channel = TypeVar("_Channel", bound=ChannelDemand)

COMPETING = 1000
"""How many channels with leased messages, and how many ready ones, are read to find a channel's rivals."""

COUNTED = 60 * COMPETING
"""The most leased messages that are read to find a channel's rivals, or the message that is out longest."""

_TIMED = 10_000
_STEPS = timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15)
_POINTS = 100

HEARD = timedelta(seconds=10)
"""The longest time until a worker hears of a request to stop, if its database answers."""


# The field ``wait`` is filled in when the reasons are read.
_DEMAND = [field.name for field in fields(ChannelDemand) if field.name != "wait"]
_OF_QUEUE = ("paused_at", "max_concurrency", "max_cost_out", "current_cost", "next_cost", "rate_allows_at", "noted_at")
_OF_FIRST = ("message_id", "kind", "channel", "delivered_at")
_SAMPLE = Shape(("fq_now as now", "cast(pg_catalog.pg_current_snapshot() as text) as snapshot"))


@dataclass(frozen=True, slots=True)
class SampleContext:
    """The time of a sample by the database's clock, and the sample's snapshot, as the text of a ``pg_snapshot``."""

    at: datetime
    snapshot: str


def read_clock(connection: Connection, schema: str | None) -> datetime:
    return instant(call(schema, "fq_now", "read the clock of the queues").value(connection))


def sample_context(connection: Connection, schema: str | None) -> SampleContext:
    """Return the time and the snapshot of one statement. In REPEATABLE READ the whole transaction has this snapshot."""
    [row] = call(schema, "fq_now", "read the clock of the queues", _SAMPLE).rows(connection)
    return SampleContext(instant(row.now), row.snapshot)


def count_completions(
    connection: Connection, schema: str | None, *, before: str, queues: Sequence[str]
) -> dict[tuple[str, str], int]:
    """Count, by queue and channel, completed attempts that this statement sees, but the snapshot *before* did not."""
    doing = "count the completions since the last sample"
    rows = read(connection, schema, "fq_completions", doing, Row, before=before, queues=list(queues))
    return {(row["queue"], row["channel"]): row["completed"] for row in rows if row["completed"]}


def read_queues(connection: Connection, schema: str | None) -> list[str]:
    return [queue for (queue,) in call(schema, "fq_queues", "list the queues").rows(connection)]


def read_stats(connection: Connection, target: Target) -> QueueStats:
    return stats_by_queue(connection, target.schema, [target.queue])[target.queue]


def stats_by_queue(connection: Connection, schema: str | None, queues: Sequence[str]) -> dict[str, QueueStats]:
    found = read_by_queue(connection, schema, "fq_stats", "read the stats of", QueueStats, queues)
    return {queue: stats for queue, [stats] in found.items()}


def read_channel_stats(
    connection: Connection,
    target: Target,
    channels: Sequence[str] | None,
    *,
    limit: int,
    after: str | None = None,
    busy: bool = False,
) -> list[ChannelStats]:
    """Return stats of up to *limit* channels after the name *after*, by name; if *busy*, only of busy channels."""

    def stats(*, policy: Row, **row: Any) -> ChannelStats:
        return ChannelStats(queue=target.queue, **row, **policy_values(policy))

    which: Row = {"channels": channels and list(channels), "limit": limit, "after": after, "busy": busy}
    return target.read(connection, "fq_channel_stats", "read the stats of the channels of", stats, **which)


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to stop the workers of one name, which the caller knows. A new request has a new *requested_at*."""

    queue: str
    requested_by: str
    requested_at: datetime


def read_contention(connection: Connection, target: Target, *, limit: int) -> Contention:
    return contention_by_queue(connection, target.schema, [target.queue], limit=limit)[target.queue]


def contention_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[str], *, limit: int
) -> dict[str, Contention]:
    doing = "read the contention of"
    bounds = dict.fromkeys(("channels", "scan", "count"))
    found = read_by_queue(connection, schema, "fq_contention", doing, Row, queues, limit=limit, **bounds)
    return {queue: _contention(queue, rows) for queue, rows in found.items()}


def _contention(queue: str, rows: Sequence[Row]) -> Contention:
    whole = rows[0]
    return Contention(
        queue=queue,
        channels=tuple(_demand(row) for row in rows if row["channel"] is not None),
        waits=tuple(duration(max(0, wait)) for wait in whole["waits"] if wait is not None),
        leased=whole["messages_out"],
        served_cost=whole["queue_cost"],
        **{name: whole[name] for name in ("waiting", "rivals", "rival_weight")},
    )


def _demand(row: Row) -> ChannelDemand:
    return ChannelDemand(**{name: row[name] for name in _DEMAND})


def read_competition(
    connection: Connection,
    target: Target,
    channels: Sequence[str],
    *,
    rivals: int = TAKERS + 1,
    scan: int = COMPETING,
    count: int = COUNTED,
) -> tuple[QueueCapacity, Competition, list[ChannelDemand]]:
    """Return what holds a queue and some of its channels back; the cost is bounded, however large the queue is.

    The call reads at most *count* leased messages. It reads at most *scan* channels with leased messages, *scan* ready
    channels, *scan* channels that become ready later, *scan* signals, and *scan* held messages of each channel.

    Returns:
        What holds the queue back; up to *rivals* channels with the most leased messages; and the demand of each of
        *channels* that exists. To save time, a channel that has a ready message counts scheduled ones as ``ready``.
    """
    bounds: Row = {"limit": rivals, "scan": scan, "count": count}
    doing = "read what channels compete with in"
    rows = target.read(connection, "fq_contention", doing, Row, channels=list(channels), **bounds)
    whole = rows[0]
    capacity = QueueCapacity(
        queue=target.queue,
        current_concurrency=whole["queue_concurrency"],
        consumers=int(whole["consumers"]),
        **{name: whole[f"queue_{name}"] for name in _OF_QUEUE},
    )
    demands = [_demand(row) for row in rows if row["channel"] is not None]
    holding = (one for one in demands if one.leased)
    found = Competition(
        queue=target.queue,
        channels=tuple(sorted(holding, key=lambda one: (-one.leased, one.channel))[:rivals]),
        rival_weight=whole["rival_weight"],
        leased=whole["messages_out"],
        served_cost=whole["queue_cost"],
    )
    return capacity, found, [one for one in demands if one.channel in channels]


def with_longest_out(connection: Connection, target: Target, channels: Iterable[_Channel]) -> tuple[_Channel, ...]:
    found = tuple(channels)
    full = [one.channel for one in found if one.reason is Reason.OWN_LIMIT]
    own = {one.channel: one for one in _longest_out(connection, target, full)} if full else {}
    is_full = any(one.reason is Reason.QUEUE_LIMIT for one in found)
    of_queue = next(iter(_longest_out(connection, target, None)), None) if is_full else None

    def told(channel: _Channel) -> _Channel:
        longest = own.get(channel.channel) if channel.reason is Reason.OWN_LIMIT else of_queue
        if channel.wait is None or longest is None or channel.reason not in {Reason.OWN_LIMIT, Reason.QUEUE_LIMIT}:
            return channel
        if longest.since is None and channel.reason is Reason.OWN_LIMIT and channel.max_concurrency == 1:
            longest = replace(longest, since=channel.last_dequeue_at)
        return replace(channel, wait=replace(channel.wait, longest_out=longest))

    return tuple(told(one) for one in found)


def _longest_out(connection: Connection, target: Target, channels: list[str] | None) -> list[LongestOut]:
    doing = "read what is out longest of"
    rows = target.read(connection, "fq_longest_out", doing, Row, channels=channels, count=COUNTED)
    return [LongestOut(since=row.pop("delivered_at"), **row) for row in rows]


def read_points(
    connection: Connection, target: Target, channel: str | None, over: timedelta, step: timedelta
) -> list[TrendPoint]:
    return target.read(connection, "fq_trend", "read the trend of", TrendPoint, channel=channel, over=over, step=step)


def read_trend(connection: Connection, target: Target, channel: str | None, over: timedelta) -> Trend:
    step = next(one for one in _STEPS if one * _POINTS >= over)
    doing = "read the trend of"
    which: Row = {"channel": channel, "over": over}
    bounds = [microseconds(bound) for bound in HANDLER_BOUNDS]
    counts: dict[str, list[int]] = {}
    for row in target.read(connection, "fq_handler_times", doing, Row, bounds=bounds, scan=_TIMED, **which):
        counts.setdefault(row["kind"], [0] * (len(bounds) + 1))[row["bucket"]] = row["attempts"]
    handlers = (HandlerTimes(kind=kind, counts=tuple(found)) for kind, found in counts.items())
    return Trend(
        queue=target.queue,
        channel=channel,
        step=step,
        points=tuple(read_points(connection, target, channel, over, step)),
        handlers=tuple(sorted(handlers, key=lambda one: (-one.attempts, one.kind))),
    )


def read_consumers(connection: Connection, target: Target, *, limit: int, handlers: int = 0) -> list[ConsumerInfo]:
    found = consumers_by_queue(connection, target.schema, [target.queue], limit=limit, handlers=handlers)
    return found[target.queue]


def consumers_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[str], *, limit: int, handlers: int = 0
) -> dict[str, list[ConsumerInfo]]:
    doing = "read the consumers of"
    found = read_by_queue(
        connection, schema, "fq_consumers", doing, _consumer, queues, limit=limit, handlers=max(handlers, 1)
    )
    return {
        queue: [replace(one, handlers=one.handlers[:handlers]) for one in consumers]
        for queue, consumers in found.items()
    }


def _consumer(*, handlers: str | None, **row: Any) -> ConsumerInfo:
    held = json.loads(handlers or "[]")
    for one in held:
        for name in ("delivered_at", "cancelled_at"):
            one[name] = None if one[name] is None else any_instant(one[name])
    messages = tuple(HeldMessage(**one) for one in held)
    of_first: Row = {name: getattr(next(iter(messages), None), name, None) for name in _OF_FIRST}
    consumer = ConsumerInfo(handlers=messages, **of_first, **row)
    if consumer.stop_requested_at is None:
        return consumer
    # A worker hears of a request within HEARD, and then takes no more work and waits for none. So if a consumer takes
    # work or begins to wait later, it has started after the request.
    heard_at = consumer.stop_requested_at + HEARD
    took = consumer.delivered_at is not None and consumer.delivered_at > heard_at
    waits = consumer.waiting_until is not None and consumer.waiting_until > heard_at + LONGEST_WAIT
    return replace(consumer, stop_requested_at=None, stop_requested_by=None) if took or waits else consumer


def read_stop_requests(
    connection: Connection,
    schema: str | None,
    queues: Sequence[str],
    consumer: str,
    *,
    lease_ids: Sequence[int],
    concurrency: int,
) -> list[StopRequest]:
    """Return the requests to stop a worker. Store the worker's concurrency and this library's version in its leases."""
    doing = f"look for requests to {consumer!r} to stop"
    worker: Row = {"consumer": consumer, "concurrency": concurrency, "version": library_version()}
    which: Row = {"queues": list(queues), "lease_ids": list(lease_ids)}
    return read(connection, schema, "fq_stop_requests", doing, StopRequest, **worker, **which)
