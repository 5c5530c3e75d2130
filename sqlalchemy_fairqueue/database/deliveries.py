"""Dequeues: messages are taken under a lease, and signals are heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from sqlalchemy_fairqueue.database.calls import call, fetch_rows, once_a_schema
from sqlalchemy_fairqueue.errors import said
from sqlalchemy_fairqueue.times import duration, instant, microseconds
from sqlalchemy_fairqueue.values import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target

# Numbers come in one array, since each column of a result costs the client about 2 us: for a message the first ones,
# for the call the others.
_NUMBERS = (
    "case when message_id is not null"
    " then array[message_id, enqueued_at, cast(attempt as bigint), cast(max_attempts as bigint),"
    " cast(deliveries as bigint)]"
    " else array[lease_id, lease_expires_at, due_in, cast(cast(holds_slots as integer) as bigint),"
    " cast(cast(is_timed as integer) as bigint), cast(cast(keeps_results as integer) as bigint),"
    " cast(cast(is_held as integer) as bigint)] end as numbers"
)


class DeliveredMessage(TypedDict):
    """A message that a dequeue took, by the names of the fields of a delivery."""

    message_id: int
    row_id: str
    channel: str
    kind: str
    content: bytes
    headers: str | None
    enqueued_at: datetime
    attempt: int
    max_attempts: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Dequeued:
    """The answer of a dequeue.

    Attributes:
        messages: What it took, in turn.
        unreadable: Messages that it took and that cannot be read, with what is wrong.
        lease: The lease that they are held under. None: nothing was taken.
        lease_id: The lease that the next dequeue may use again. None: there is none.
        hold_slots: Whether the messages may hold slots of a limit, their channels' or the queue's.
        is_timed: Whether the queue is fair by seconds.
        keeps_results: Whether the queue keeps what handlers return.
        is_held: Whether something is due that another transaction has locked.
        due_in: How long until something else may be due. None: nothing is scheduled.
    """

    messages: list[DeliveredMessage]
    unreadable: list[tuple[int, str]]
    lease: Lease | None
    lease_id: int | None
    hold_slots: bool
    is_timed: bool
    keeps_results: bool
    is_held: bool
    due_in: timedelta | None


@once_a_schema
def dequeue_clause(schema: str | None) -> Clause:
    """``fq_dequeue``: one row a message, then one about the call."""
    return call(
        schema,
        "fq_dequeue",
        (
            _NUMBERS,
            # The driver reads no binary tid.
            "cast(row_id as text) as row_id",
            # Headers not as the driver reads JSON: one that it cannot read would cost the whole batch. Texts as bytes:
            # neither does one that the connection's encoding lacks.
            "pg_catalog.convert_to(channel, 'UTF8') as channel",
            "pg_catalog.convert_to(kind, 'UTF8') as kind",
            "content",
            "pg_catalog.convert_to(cast(headers as text), 'UTF8') as headers",
        ),
        queue="text",
        limit="integer",
        lease="bigint",
        consumer="text",
        lease_id="bigint",
        max_bytes="bigint",
    )


def dequeue(
    connection: Connection,
    target: Target,
    *,
    limit: int,
    lease: timedelta,
    consumer: str,
    lease_id: int | None,
    max_bytes: int | None = None,
) -> Dequeued:
    """Take ready messages under a lease. The caller commits.

    Args:
        connection: Where it is the only statement of its transaction.
        target: The queue.
        limit: Most messages to take.
        lease: How long the lease is to live.
        consumer: Shown beside the lease.
        lease_id: A lease of the consumer's to use again.
        max_bytes: Most bytes of contents and headers to take; one message may have more. None: any number.
    """
    *rows, about = fetch_rows(
        connection,
        dequeue_clause(target.schema),
        {
            "queue": target.queue,
            "limit": limit,
            "lease": microseconds(lease),
            "consumer": consumer,
            "lease_id": lease_id,
            "max_bytes": max_bytes,
        },
        f"dequeue from queue {target.queue!r}",
        as_bytes=True,
    )
    used_lease_id, expires_at, due_in, holds_slots, is_timed, keeps_results, is_held = about[0]
    messages: list[DeliveredMessage] = []
    unreadable: list[tuple[int, str]] = []
    for row in rows:
        try:
            messages.append(_delivered(row))
        except (ValueError, OverflowError, TypeError) as error:
            unreadable.append((row[0][0], said(error)))
    return Dequeued(
        messages=messages,
        unreadable=unreadable,
        lease=Lease(used_lease_id, consumer, instant(expires_at)) if rows else None,
        lease_id=used_lease_id,
        hold_slots=holds_slots == 1,
        is_timed=is_timed == 1,
        keeps_results=keeps_results == 1,
        is_held=is_held == 1,
        due_in=None if due_in is None else duration(due_in),
    )


def _delivered(row: Sequence[Any]) -> DeliveredMessage:
    numbers, row_id, channel, kind, content, headers = row
    message_id, enqueued_at, attempt, max_attempts, deliveries = numbers
    return {
        "message_id": message_id,
        "row_id": row_id,
        "channel": str(channel, "utf-8"),
        "kind": str(kind, "utf-8"),
        "content": content,
        "headers": None if headers is None else str(headers, "utf-8"),
        "enqueued_at": instant(enqueued_at),
        "attempt": attempt,
        "max_attempts": max_attempts,
        "deliveries": deliveries,
    }


@once_a_schema
def hear_clause(schema: str | None) -> Clause:
    """``fq_hear``."""
    return call(schema, "fq_hear", "has_more", queue="text")


def hear(connection: Connection, target: Target) -> bool:
    """Apply signals to the state of their channels; whether there are more. The caller commits.

    Args:
        connection: Where it is the only statement of its transaction.
        target: The queue.
    """
    [row] = fetch_rows(
        connection, hear_clause(target.schema), {"queue": target.queue}, f"hear the signals of queue {target.queue!r}"
    )
    return bool(row[0])
