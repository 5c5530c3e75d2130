"""Dequeues: messages are taken under a lease, and signals are heard."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

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

Hints = list[int | None]
"""Positions at which a dequeue found something: the consumer's next one begins there. Any value is safe."""


class Hint(IntEnum):
    """The elements of :data:`Hints`, as fq_dequeue returns them. Times are microseconds since the epoch.

    Attributes:
        READY_FLOOR: The start tag at which the ready order was found to begin.
        SIGNAL_FLOOR: The id below which no signal is left, but for those of open transactions.
        NEXT_SIGNAL_FLOOR: The signal floor once the transactions below FLOOR_XID have ended.
        FLOOR_XID: A transaction id.
        FULL_SCAN_AT: When the next full scan is due.
        BELOW_SCAN_AT: When the next scan below READY_FLOOR is due.
        HOLD_SLOTS: 1 if the messages may hold slots of a limit.
        LOCKED_SINCE: Since when the same is due and locked; None: nothing is.
        LOCKED: What that is: a start tag, or a signal.
        LEASE_FLOOR: The expiry below which no live lease is left.
        IS_TIMED: 1 if the queue is fair by seconds.
        KEEPS_RESULTS: 1 if the queue keeps what handlers return.
        SERVER: When the server started that gave them; another one leaves them aside.
        OPEN: From here on: ids of transactions that were open when SIGNAL_FLOOR rose past them, then as many floors,
            each from before it rose.
    """

    READY_FLOOR = 0
    SIGNAL_FLOOR = 1
    NEXT_SIGNAL_FLOOR = 2
    FLOOR_XID = 3
    FULL_SCAN_AT = 4
    BELOW_SCAN_AT = 5
    HOLD_SLOTS = 6
    LOCKED_SINCE = 7
    LOCKED = 8
    LEASE_FLOOR = 9
    IS_TIMED = 10
    KEEPS_RESULTS = 11
    SERVER = 12
    OPEN = 13


# Numbers come in one array, since each column of a result costs the client about 2 us: for a message the first ones,
# for the call the others and its hints.
_NUMBERS = (
    "case when message_id is not null"
    " then array[message_id, enqueued_at, cast(attempt as bigint), cast(max_attempts as bigint),"
    " cast(deliveries as bigint)]"
    " else pg_catalog.array_cat(array[lease_id, lease_expires_at, due_in, signals_after], hints) end as numbers"
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
        hints: For the next dequeue.
        is_locked: Whether something is due that another transaction has locked.
        due_in: How long until something else may be due. None: nothing is scheduled.
        signals_after: The last signal that was heard, if more are waiting.
    """

    messages: list[DeliveredMessage]
    unreadable: list[tuple[int, str]]
    lease: Lease | None
    lease_id: int | None
    hold_slots: bool
    is_timed: bool
    keeps_results: bool
    hints: Hints | None
    is_locked: bool
    due_in: timedelta | None
    signals_after: int | None


class Heard(NamedTuple):
    """The answer of a hearing.

    Attributes:
        seen: How many signals it has read, up to its limit.
        last_id: The last of them.
        scheduled_at: When the first channel that it scheduled is due, in the unit of hints.
    """

    seen: int
    last_id: int
    scheduled_at: int | None

    def after(self, hints: Hints | None) -> Hints | None:
        """The hints of before it, so that a dequeue finds what it scheduled."""
        if self.scheduled_at is None or hints is None or (floor := hints[Hint.READY_FLOOR]) is None:
            return hints
        return [min(floor, self.scheduled_at), *hints[1:]]


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
        hints="bigint[]",
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
    hints: Hints | None,
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
        hints: As the consumer's last dequeue gave them.
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
            "hints": hints,
            "max_bytes": max_bytes,
        },
        f"dequeue from queue {target.queue!r}",
        as_bytes=True,
    )
    used_lease_id, expires_at, due_in, signals_after, *found = about[0]
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
        hold_slots=_hint(found, Hint.HOLD_SLOTS) != 0,
        is_timed=_hint(found, Hint.IS_TIMED) == 1,
        keeps_results=_hint(found, Hint.KEEPS_RESULTS) == 1,
        hints=found or None,
        is_locked=_hint(found, Hint.LOCKED_SINCE) is not None,
        due_in=None if due_in is None else duration(due_in),
        signals_after=signals_after,
    )


def _hint(hints: Hints, which: Hint) -> int | None:
    """An element of hints; None where it is missing or null."""
    return hints[which] if which < len(hints) else None


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
    columns = "seen, last_id, scheduled_at"
    return call(schema, "fq_hear", columns, queue="text", after="bigint", limit="integer")


def hear(connection: Connection, target: Target, *, after: int, limit: int) -> Heard:
    """Apply signals to the state of their channels. The caller commits.

    Args:
        connection: Where it is the only statement of its transaction.
        target: The queue.
        after: The last signal that was heard.
        limit: Most signals to read.
    """
    [row] = fetch_rows(
        connection,
        hear_clause(target.schema),
        {"queue": target.queue, "after": after, "limit": limit},
        f"hear the signals of queue {target.queue!r}",
    )
    return Heard._make(row)
