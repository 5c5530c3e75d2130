"""Rows that make a dequeue fail are set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema
from sqlalchemy_fairqueue.database.drivers import sqlstate_of

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
        message_id: The message. None: the state of a channel, or of the queue, was made anew.
        channel_id: Its channel. None: it is about the queue.
        outcome: "dead": it is a dead letter; "paused": its channel is paused; "mended": the state was made anew.
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
