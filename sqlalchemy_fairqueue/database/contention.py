"""Contention of a queue: its waiting and holding channels, and its consumers. Nothing here changes or locks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call, fetch, named, once_a_schema
from sqlalchemy_fairqueue.database.stop_requests import asked_to_stop
from sqlalchemy_fairqueue.database.waits import LONGEST_WAIT
from sqlalchemy_fairqueue.times import any_instant, duration
from sqlalchemy_fairqueue.values import (
    TAKERS,
    ChannelContention,
    ChannelDemand,
    ConsumerInfo,
    Contender,
    Contention,
    Rate,
    Rival,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.stop_requests import StopRequest
    from sqlalchemy_fairqueue.database.targets import Target

COMPETING = 1000
"""Channels with messages out, and ready channels, that the contention of one channel is read from."""

COUNTED = 60 * COMPETING
"""Messages out that are counted for it: a microsecond each, where a channel's weight takes five."""

HEARD = timedelta(seconds=10)
"""A worker that its database answers has heard of a request to stop by then."""

# Names as bytes: one that the connection's encoding lacks would cost all rows.
_CHANNEL = "pg_catalog.convert_to(channel, 'UTF8') as channel"


@once_a_schema
def contention_clause(schema: str | None) -> Clause:
    """``fq_contention``."""
    columns = (
        "ready, scheduled, leased, current_concurrency, max_concurrency, rate_interval, rate_burst, weight, paused_at, "
        "oldest_ready_at, last_dequeue_at, rate_allows_at, waiting, rivals, rival_weight, messages_out, waits, "
        "served_cost, queue_cost"
    )
    return call(schema, "fq_contention", f"{_CHANNEL}, {columns}", queue="text", limit="integer", each="queue")


def contention(connection: Connection, target: Target, *, limit: int) -> Contention:
    """Return the channels that wait longest and those with the most messages out, up to *limit* of each."""
    return contention_by_queue(connection, target.schema, [target.queue], limit=limit)[target.queue]


def contention_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[str], *, limit: int
) -> dict[str, Contention]:
    """Return the same for queues, by one statement."""
    parameters = {"queue": list(queues), "limit": limit}
    rows = fetch(connection, contention_clause(schema), parameters, f"read the contention of {named(queues)}")
    found = _rows_by_queue(queues, rows)
    return {queue: _contention(queue, found[queue]) for queue in queues}


def _rows_by_queue(queues: Sequence[str], rows: Sequence[Row[Any]]) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = {queue: [] for queue in queues}
    for row in rows:
        found[queues[row.place - 1]].append(row)
    return found


def _contention(queue: str, rows: Sequence[Row[Any]]) -> Contention:
    whole = rows[0] if rows else None
    return Contention(
        queue=queue,
        channels=tuple(map(_demand, rows)),
        waiting=whole.waiting if whole else 0,
        rivals=whole.rivals if whole else 0,
        rival_weight=whole.rival_weight if whole else 0,
        leased=whole.messages_out if whole else 0,
        waits=tuple(duration(max(0, wait)) for wait in (whole.waits if whole else ()) if wait is not None),
        served_cost=whole.queue_cost if whole else None,
    )


def _demand(row: Row[Any]) -> ChannelDemand:
    return ChannelDemand(
        channel=str(row.channel, "utf-8"),
        ready=row.ready,
        scheduled=row.scheduled,
        leased=row.leased,
        current_concurrency=row.current_concurrency,
        max_concurrency=row.max_concurrency,
        rate=Rate.of(duration(row.rate_interval), row.rate_burst),
        weight=row.weight,
        paused_at=_instant(row.paused_at),
        oldest_ready_at=_instant(row.oldest_ready_at),
        last_dequeue_at=_instant(row.last_dequeue_at),
        rate_allows_at=_instant(row.rate_allows_at),
        served_cost=row.served_cost,
    )


@once_a_schema
def channel_contention_clause(schema: str | None) -> Clause:
    """``fq_channel_contention``."""
    columns = (
        "own, backlog, leased, weight, paused_at, current_concurrency, max_concurrency, rate_interval, rate_burst, "
        "rate_allows_at, oldest_ready_at, last_dequeue_at, served_cost, queue_paused_at, queue_concurrency, "
        "queue_max_concurrency, queue_rate_allows_at, consumers, messages_out, rival_weight, queue_cost"
    )
    types = {"channels": "text[]", "limit": "integer", "scan": "integer", "count": "integer"}
    return call(schema, "fq_channel_contention", f"{_CHANNEL}, {columns}", queue="text", **types)


def channel_contention(
    connection: Connection, target: Target, channel: str, *, scan: int = COMPETING, count: int = COUNTED
) -> ChannelContention:
    """What a channel competes with, and what else holds it back.

    Args:
        connection: Where to ask.
        target: The queue.
        channel: The channel, which is there.
        scan: Most channels with messages out, ready channels and signals to read.
        count: Most messages out to count.
    """
    # One more than a wait names: the channel itself may be among them.
    rows = _channel_rows(connection, target, [channel], limit=TAKERS + 1, scan=scan, count=count)
    return replace(_contention_with(target, rows), contender=replace(_contender(rows[0]), channel=channel))


def channel_contentions(
    connection: Connection, target: Target, channels: Sequence[str], *, rivals: int
) -> list[ChannelContention]:
    """The same for each of several channels that is there, by one reading.

    Args:
        connection: Where to ask.
        target: The queue.
        channels: The channels.
        rivals: Most channels with messages out to list.
    """
    rows = _channel_rows(connection, target, list(channels), limit=rivals)
    found = [_contender(row) for row in rows if row.own and row.channel is not None]
    if not found:
        return []
    # They compete with the same channels, so that these are made once.
    first = _contention_with(target, rows)
    return [replace(first, contender=one) for one in found]


def _channel_rows(
    connection: Connection,
    target: Target,
    channels: list[str],
    *,
    limit: int,
    scan: int = COMPETING,
    count: int = COUNTED,
) -> Sequence[Row[Any]]:
    parameters = {"queue": target.queue, "channels": channels, "limit": limit, "scan": scan, "count": count}
    doing = f"read what channels of queue {target.queue!r} compete with"
    return fetch(connection, channel_contention_clause(target.schema), parameters, doing)


def _contender(row: Row[Any]) -> Contender:
    return Contender(
        channel=_text(row.channel) or "",
        leased=row.leased,
        weight=row.weight or 1,
        paused_at=_instant(row.paused_at),
        current_concurrency=row.current_concurrency or 0,
        max_concurrency=row.max_concurrency,
        rate=Rate.of(duration(row.rate_interval or 0), row.rate_burst),
        rate_allows_at=_instant(row.rate_allows_at),
        served_cost=row.served_cost,
        backlog=row.backlog or 0,
        oldest_ready_at=_instant(row.oldest_ready_at),
        last_dequeue_at=_instant(row.last_dequeue_at),
    )


def _contention_with(target: Target, rows: Sequence[Row[Any]]) -> ChannelContention:
    """What the first row's channel competes with."""
    whole = rows[0]
    return ChannelContention(
        queue=target.queue,
        contender=_contender(whole),
        channels=tuple(Rival(_text(row.channel) or "", row.leased, row.weight or 1) for row in rows if not row.own),
        leased=whole.messages_out,
        rival_weight=whole.rival_weight,
        served_cost=whole.queue_cost,
        paused_at=_instant(whole.queue_paused_at),
        current_concurrency=whole.queue_concurrency,
        max_concurrency=whole.queue_max_concurrency,
        rate_allows_at=_instant(whole.queue_rate_allows_at),
        consumers=whole.consumers,
    )


@once_a_schema
def consumers_clause(schema: str | None) -> Clause:
    """``fq_consumers``."""
    names = (
        f"pg_catalog.convert_to(consumer, 'UTF8') as consumer, pg_catalog.convert_to(kind, 'UTF8') as kind, {_CHANNEL}"
    )
    return call(
        schema,
        "fq_consumers",
        f"{names}, leased, delivered_at, message_id, expires_at, waiting_until",
        queue="text",
        limit="integer",
        each="queue",
    )


def consumers(connection: Connection, target: Target, *, limit: int) -> list[ConsumerInfo]:
    """Return the consumers with a lease that has not expired, the most messages first."""
    return consumers_by_queue(connection, target.schema, [target.queue], limit=limit)[target.queue]


def consumers_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[str], *, limit: int
) -> dict[str, list[ConsumerInfo]]:
    """Return the same for queues, by two statements."""
    parameters = {"queue": list(queues), "limit": limit}
    rows = fetch(connection, consumers_clause(schema), parameters, f"read the consumers of {named(queues)}")
    found = _rows_by_queue(queues, rows)
    requests = asked_to_stop(connection, schema, [queue for queue in queues if found[queue]])
    return {queue: [_consumer(queue, row, requests) for row in found[queue]] for queue in queues}


def _consumer(queue: str, row: Row[Any], requests: Mapping[tuple[str, str], StopRequest]) -> ConsumerInfo:
    found = ConsumerInfo(
        queue=queue,
        consumer=_text(row.consumer) or "",
        leased=row.leased,
        delivered_at=_instant(row.delivered_at),
        message_id=row.message_id,
        kind=_text(row.kind),
        channel=_text(row.channel),
        expires_at=any_instant(row.expires_at),
        waiting_until=_instant(row.waiting_until),
    )
    return _asked(found, requests.get((queue, found.consumer)))


def _asked(consumer: ConsumerInfo, request: StopRequest | None) -> ConsumerInfo:
    """A consumer with the request to stop, unless it has begun something since that a worker that stops does not."""
    if request is None:
        return consumer
    heard_at = request.requested_at + HEARD
    took = consumer.delivered_at is not None and consumer.delivered_at > heard_at
    waits = consumer.waiting_until is not None and consumer.waiting_until > heard_at + LONGEST_WAIT
    if took or waits:
        return consumer
    return replace(consumer, stop_requested_at=request.requested_at, stop_requested_by=request.requested_by)


def _instant(value: int | None) -> datetime | None:
    return None if value is None else any_instant(value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else str(value, "utf-8", "replace")
