"""Details of messages and of groups of dead letters. Nothing here changes or locks anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema
from sqlalchemy_fairqueue.times import any_instant
from sqlalchemy_fairqueue.values import AttemptDetails, DeadLetterGroup, MessageDetails

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target


def _as_bytes(*names: str) -> str:
    # A text that the connection's encoding lacks would cost all rows.
    return ", ".join(f"pg_catalog.convert_to({name}, 'UTF8') as {name}" for name in names)


@once_a_schema
def message_details_clause(schema: str | None) -> Clause:
    """``fq_message_details``."""
    texts = _as_bytes("channel", "kind", "headers", "key", "consumer", "error")
    rest = (
        "message_id, content, content_size, enqueued_at, dequeue_at, delivered_at, returned_at, attempts, "
        "max_attempts, deliveries, cancelled, expires_at, unreadable"
    )
    types = {"ids": "bigint[]", "channel": "text", "limit": "integer", "bytes": "integer"}
    return call(schema, "fq_message_details", f"{texts}, {rest}", queue="text", **types)


def message_details(
    connection: Connection,
    target: Target,
    ids: Sequence[int] | None = None,
    *,
    channel: str | None = None,
    limit: int = 20,
    content_bytes: int = 65_536,
) -> list[MessageDetails]:
    """Messages that are not settled: those with the ids, or the first of a channel, those that consumers hold before.

    Args:
        connection: Where to ask.
        target: The queue.
        ids: The messages. None: those of the channel.
        channel: The channel.
        limit: Most to return of those that consumers hold, and of those that nobody holds.
        content_bytes: Most bytes of each payload.
    """
    parameters = {
        "queue": target.queue,
        "ids": None if ids is None else list(ids),
        "channel": channel,
        "limit": limit,
        "bytes": content_bytes,
    }
    doing = f"read messages of queue {target.queue!r}"
    rows = fetch(connection, message_details_clause(target.schema), parameters, doing)
    return [
        MessageDetails(
            message_id=row.message_id,
            channel=_text(row.channel) or "",
            kind=_text(row.kind),
            content=bytes(row.content or b""),
            content_size=row.content_size,
            headers=_text(row.headers),
            key=_text(row.key),
            enqueued_at=any_instant(row.enqueued_at),
            due_at=any_instant(row.dequeue_at),
            delivered_at=_instant(row.delivered_at),
            returned_at=_instant(row.returned_at),
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            deliveries=row.deliveries,
            cancelled=row.cancelled,
            consumer=_text(row.consumer),
            expires_at=_instant(row.expires_at),
            error=_text(row.error),
            unreadable=row.unreadable,
        )
        for row in rows
    ]


@once_a_schema
def message_attempts_clause(schema: str | None) -> Clause:
    """``fq_message_attempts``."""
    columns = f"{_as_bytes('channel', 'consumer', 'error')}, attempt, ready_at, started_at, finished_at, outcome"
    types = {"queue": "text", "message_id": "bigint", "limit": "integer", "chars": "integer"}
    return call(schema, "fq_message_attempts", columns, **types)


def message_attempts(
    connection: Connection, target: Target, message_id: int, *, limit: int = 100, chars: int = 10_000
) -> list[AttemptDetails]:
    """The last attempts at a message that have ended without completing it, the oldest first.

    Args:
        connection: Where to ask.
        target: The queue.
        message_id: The message.
        limit: Most to return, the newest.
        chars: Most characters of each error.
    """
    parameters = {"queue": target.queue, "message_id": message_id, "limit": limit, "chars": chars}
    doing = f"read the attempts at message {message_id} of queue {target.queue!r}"
    rows = fetch(connection, message_attempts_clause(target.schema), parameters, doing)
    return [
        AttemptDetails(
            attempt=row.attempt,
            channel=_text(row.channel) or "",
            consumer=_text(row.consumer),
            ready_at=any_instant(row.ready_at),
            started_at=any_instant(row.started_at),
            finished_at=any_instant(row.finished_at),
            outcome=row.outcome,
            error=_text(row.error),
        )
        for row in reversed(rows)
    ]


@once_a_schema
def dead_letter_groups_clause(schema: str | None) -> Clause:
    """``fq_dead_letter_groups``."""
    texts = _as_bytes("kind", "reason", "error")
    columns = f"{texts}, letters, channels, first_died_at, last_died_at, message_ids"
    return call(schema, "fq_dead_letter_groups", columns, queue="text", limit="integer", ids="integer")


def dead_letter_groups(connection: Connection, target: Target, *, limit: int, ids: int) -> list[DeadLetterGroup]:
    """The newest dead letters by kind, reason and error, the largest group first.

    Args:
        connection: Where to ask.
        target: The queue.
        limit: Most dead letters to read.
        ids: Most ids to return of each group.
    """
    parameters = {"queue": target.queue, "limit": limit, "ids": ids}
    doing = f"read the dead letters of queue {target.queue!r}"
    rows = fetch(connection, dead_letter_groups_clause(target.schema), parameters, doing)
    return [
        DeadLetterGroup(
            kind=_text(row.kind),
            reason=_text(row.reason),
            error=_text(row.error),
            letters=row.letters,
            channels=row.channels,
            first_died_at=any_instant(row.first_died_at),
            last_died_at=any_instant(row.last_died_at),
            message_ids=tuple(row.message_ids),
        )
        for row in rows
    ]


def _instant(value: int | None) -> datetime | None:
    return None if value is None else any_instant(value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else str(value, "utf-8", "replace")
