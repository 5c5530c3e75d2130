"""Dead letters: read, redriven and purged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy_fairqueue.codecs import decoded, headers_of
from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.times import any_instant, instant_microseconds
from sqlalchemy_fairqueue.values import DeadLetterInfo

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.codecs import Codec
    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target


_COLUMNS = (
    "message_id", "channel", "kind", "content", "headers", "key", "enqueued_at", "attempts", "max_attempts",
    "deliveries", "reason", "error", "died_at", "unreadable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Dead letters of a queue that are concerned. What is given must all be met; None restricts nothing.

    Attributes:
        ids: Only these messages.
        channel: Only those of this channel.
        kind: Only those of this kind.
        error: Only those whose reason or error contains this text. To read alone, as the next ones.
        since: Only those that died then or later.
        until: Only those that died before then.
    """

    ids: list[int] | None = None
    channel: str | None = None
    kind: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def parameters(self, target: Target) -> dict[str, Any]:
        """As the functions take them."""
        return {"queue": target.queue, "ids": self.ids, "channel": self.channel, "kind": self.kind}


@once_a_schema
def dead_letters_clause(schema: str | None) -> Clause:
    """``fq_dead_letters``. Texts come as bytes: one that the connection's encoding lacks would cost the whole page."""
    texts = {"channel", "kind", "headers", "key", "reason", "error"}
    return call(
        schema,
        "fq_dead_letters",
        ", ".join(f"pg_catalog.convert_to({name}, 'UTF8') as {name}" if name in texts else name for name in _COLUMNS),
        queue="text",
        ids="bigint[]",
        channel="text",
        kind="text",
        died_at="bigint",
        message_id="bigint",
        limit="integer",
        error="text",
        since="bigint",
        until="bigint",
    )


def dead_letters(
    connection: Connection,
    target: Target,
    which: DeadLetterFilter,
    *,
    limit: int,
    after: DeadLetterInfo | None,
    codec: Codec,
) -> list[DeadLetterInfo]:
    """Dead letters of a queue, the oldest death first.

    Args:
        connection: Where to ask.
        target: The queue.
        which: Only these.
        limit: Most to return.
        after: The last one of the page before.
        codec: Decodes the payloads.
    """
    page = {
        "limit": limit,
        "died_at": None if after is None else instant_microseconds(after.died_at),
        "message_id": None if after is None else after.message_id,
        "error": which.error,
        "since": None if which.since is None else instant_microseconds(which.since),
        "until": None if which.until is None else instant_microseconds(which.until),
    }
    parameters = which.parameters(target) | page
    doing = f"read the dead letters of queue {target.queue!r}"
    rows = fetch(connection, dead_letters_clause(target.schema), parameters, doing, as_bytes=True)
    return [_dead_letter(target, codec, row) for row in rows]


def _dead_letter(target: Target, codec: Codec, row: Row[Any]) -> DeadLetterInfo:
    headers, refused = headers_of(_text(row.headers))
    if row.unreadable is not None:
        refused = PayloadError(f"dead letter {row.message_id} cannot be read: {row.unreadable}; purge it")
    return DeadLetterInfo(
        message_id=row.message_id,
        queue=target.queue,
        channel=_text(row.channel) or "",
        kind=_text(row.kind) or "",
        content=row.content or b"",
        headers=headers,
        key=_text(row.key),
        enqueued_at=any_instant(row.enqueued_at),
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        deliveries=row.deliveries,
        reason=_text(row.reason) or "",
        error=_text(row.error) if row.unreadable is None else str(refused),
        died_at=any_instant(row.died_at),
        decoded=refused or decoded(codec, row.content),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else str(value, "utf-8", "replace")


@once_a_schema
def redrive_clause(schema: str | None) -> Clause:
    """``fq_redrive``."""
    types = {"ids": "bigint[]", "channel": "text", "kind": "text", "limit": "integer", "notify": "boolean"}
    return call(schema, "fq_redrive", "message_id, outcome", queue="text", **types)


def redrive(
    connection: Connection, target: Target, which: DeadLetterFilter, *, limit: int, notify: bool
) -> dict[int, str]:
    """Give dead letters another life, the oldest death first. Returns the outcome of each by its id."""
    parameters = which.parameters(target) | {"limit": limit, "notify": may_notify(connection, notify)}
    doing = f"redrive dead letters of queue {target.queue!r}"
    rows = fetch(connection, redrive_clause(target.schema), parameters, doing)
    return {row.message_id: row.outcome for row in rows}


@once_a_schema
def purge_dead_clause(schema: str | None) -> Clause:
    """``fq_purge_dead``."""
    types = {"ids": "bigint[]", "channel": "text", "kind": "text", "before": "bigint"}
    return call(schema, "fq_purge_dead", "fq_purge_dead as purged", queue="text", **types)


def purge_dead(connection: Connection, target: Target, which: DeadLetterFilter, *, until: datetime | None) -> int:
    """Delete dead letters for good, with *until* only those that died before then. Returns how many."""
    parameters = which.parameters(target) | {"before": None if until is None else instant_microseconds(until)}
    [row] = fetch(
        connection, purge_dead_clause(target.schema), parameters, f"purge dead letters of queue {target.queue!r}"
    )
    purged: int = row.purged
    return purged


class PrunedDeadLetters(NamedTuple):
    """The number of deleted dead letters of a queue, and whether more may be due."""

    queue: str
    deleted: int
    more: bool


@once_a_schema
def prune_dead_letters_clause(schema: str | None) -> Clause:
    """``fq_prune_dead_letters``."""
    return call(schema, "fq_prune_dead_letters", "queue, deleted, more", limit="integer")


def prune_dead_letters(connection: Connection, schema: str | None, *, limit: int) -> list[PrunedDeadLetters]:
    """Delete dead letters that are older than their queues keep them, up to *limit* of each queue."""
    rows = fetch(connection, prune_dead_letters_clause(schema), {"limit": limit}, "prune dead letters")
    return list(map(PrunedDeadLetters._make, rows))
