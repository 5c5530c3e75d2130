"""Quarantine: rows that make a dequeue fail are set aside, listed, and released or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema
from sqlalchemy_fairqueue.database.drivers import sqlstate_of
from sqlalchemy_fairqueue.times import any_instant
from sqlalchemy_fairqueue.values import QuarantinedInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target

# Data exceptions, violated constraints, what exceeds a limit of the program, and rows that are broken.
_ABOUT_DATA = ("22", "23", "54", "XX")


class SetAside(NamedTuple):
    """A row that was taken out of the way of dequeues.

    Attributes:
        message_id: The message. None: the state of a channel, or of the queue's limits, was made anew.
        channel_id: Its channel. None: it is about the queue's limits.
        outcome: "dead", "quarantined" or "mended".
        reason: Why.
    """

    message_id: int | None
    channel_id: int | None
    outcome: str
    reason: str


def is_about_data(error: BaseException) -> bool:
    """Whether a dequeue failed over a row: not over a lock, the connection, a timeout or a privilege."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    return sqlstate_of(error).startswith(_ABOUT_DATA)


@once_a_schema
def set_aside_clause(schema: str | None) -> Clause:
    """``fq_set_aside``."""
    types = {"limit": "integer", "lease_id": "bigint", "ids": "bigint[]", "reason": "text"}
    return call(schema, "fq_set_aside", "message_id, channel_id, outcome, reason", queue="text", **types)


def set_aside(
    connection: Connection,
    target: Target,
    *,
    limit: int,
    lease_id: int | None = None,
    message_ids: Sequence[int] | None = None,
    reason: str | None = None,
) -> list[SetAside]:
    """Find what makes dequeues fail and set it aside, or set messages aside that the caller could not read.

    Args:
        connection: Where it is the only statement of its transaction. The caller commits.
        target: The queue.
        limit: That of the dequeue that failed.
        lease_id: The lease that the messages are held under.
        message_ids: Messages that the caller could not read. None: find what makes dequeues fail.
        reason: Why the caller could not read them.
    """
    parameters = {
        "queue": target.queue,
        "limit": limit,
        "lease_id": lease_id,
        "ids": None if message_ids is None else list(message_ids),
        "reason": reason,
    }
    doing = f"set aside what cannot be delivered in queue {target.queue!r}"
    return [SetAside._make(row) for row in fetch(connection, set_aside_clause(target.schema), parameters, doing)]


@once_a_schema
def quarantined_clause(schema: str | None) -> Clause:
    """``fq_quarantined``."""
    columns = (
        "id, message_id, pg_catalog.convert_to(channel, 'UTF8') as channel, "
        "pg_catalog.convert_to(kind, 'UTF8') as kind, content_size, "
        "headers_size, enqueued_at, attempts, deliveries, unreadable, pg_catalog.convert_to(reason, 'UTF8') as reason, "
        "set_aside_at"
    )
    return call(schema, "fq_quarantined", columns, queue="text", after="bigint", limit="integer")


def quarantined(connection: Connection, target: Target, *, after: int, limit: int) -> list[QuarantinedInfo]:
    """The messages of a queue in quarantine, the first set aside first.

    Args:
        connection: Where to ask.
        target: The queue.
        after: The position of the last one of the page before.
        limit: Most to return.
    """
    rows = fetch(
        connection,
        quarantined_clause(target.schema),
        {"queue": target.queue, "after": after, "limit": limit},
        f"read the quarantine of queue {target.queue!r}",
        as_bytes=True,
    )
    return [
        QuarantinedInfo(
            message_id=row.message_id,
            position=row.id,
            queue=target.queue,
            channel=None if row.channel is None else row.channel.decode(),
            kind=None if row.kind is None else row.kind.decode(),
            content_size=row.content_size,
            headers_size=row.headers_size,
            enqueued_at=any_instant(row.enqueued_at),
            attempts=row.attempts,
            deliveries=row.deliveries,
            unreadable=tuple(row.unreadable),
            reason=row.reason.decode(),
            set_aside_at=any_instant(row.set_aside_at),
        )
        for row in rows
    ]


@once_a_schema
def end_quarantine_clause(schema: str | None) -> Clause:
    """``fq_end_quarantine``."""
    types = {"message_ids": "bigint[]", "release": "boolean"}
    return call(schema, "fq_end_quarantine", "message_id, outcome", queue="text", **types)


def end_quarantine(
    connection: Connection, target: Target, message_ids: Sequence[int], *, release: bool
) -> dict[int, str]:
    """Release messages from the quarantine into their channels, or delete them. Returns the outcome of each by id."""
    rows = fetch(
        connection,
        end_quarantine_clause(target.schema),
        {"queue": target.queue, "message_ids": list(message_ids), "release": release},
        f"end the quarantine of messages of queue {target.queue!r}",
    )
    return {row.message_id: row.outcome for row in rows}
