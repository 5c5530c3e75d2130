"""Dead letters: read, redriven, purged and pruned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy_fairqueue.codecs import decoded, headers_of
from sqlalchemy_fairqueue.database.calls import call, may_notify, read
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.times import instant_microseconds
from sqlalchemy_fairqueue.values import DeadLetterGroup, DeadLetterInfo

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.codecs import Codec
    from sqlalchemy_fairqueue.database.calls import Target


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
        """As the functions take them all."""
        return {"queue": target.queue, "ids": self.ids, "channel": self.channel, "kind": self.kind}


class PrunedDeadLetters(NamedTuple):
    """The number of deleted dead letters of a queue, and whether more may be due."""

    queue: str
    deleted: int
    more: bool


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
    rows = read(
        connection,
        target.schema,
        "fq_dead_letters",
        f"read the dead letters of queue {target.queue!r}",
        **which.parameters(target),
        limit=limit,
        died_at=None if after is None else instant_microseconds(after.died_at),
        message_id=None if after is None else after.message_id,
        error=which.error,
        since=None if which.since is None else instant_microseconds(which.since),
        until=None if which.until is None else instant_microseconds(which.until),
    )
    return [_dead_letter(target, codec, **row) for row in rows]


def _dead_letter(
    target: Target, codec: Codec, headers: str | None, unreadable: str | None, dedupe_key: str | None, **row: Any
) -> DeadLetterInfo:
    read_headers, refused = headers_of(headers)
    if unreadable is not None:
        refused = PayloadError(f"dead letter {row['message_id']} cannot be read: {unreadable}; purge it")
        row["error"] = str(refused)
    row |= {name: row[name] or "" for name in ("channel", "kind", "reason")}
    result = refused or decoded(codec, row["content"])
    row["content"] = row["content"] or b""
    return DeadLetterInfo(queue=target.queue, headers=read_headers, key=dedupe_key, decoded=result, **row)


def redrive(
    connection: Connection, target: Target, which: DeadLetterFilter, *, limit: int, notify: bool
) -> dict[int, str]:
    """Give dead letters another life, the oldest death first. Returns the outcome of each by its id."""
    parameters = which.parameters(target) | {"limit": limit, "notify": may_notify(connection, notify)}
    rows = call(target.schema, "fq_redrive", f"redrive dead letters of queue {target.queue!r}", **parameters)
    return dict(map(tuple, rows.rows(connection)))


def purge_dead(connection: Connection, target: Target, which: DeadLetterFilter, *, until: datetime | None) -> int:
    """Delete dead letters for good, with *until* only those that died before then. Returns how many."""
    parameters = which.parameters(target) | {"before": None if until is None else instant_microseconds(until)}
    doing = f"purge dead letters of queue {target.queue!r}"
    return call(target.schema, "fq_purge_dead", doing, **parameters).value(connection)


def prune_dead_letters(connection: Connection, schema: str | None, *, limit: int) -> list[PrunedDeadLetters]:
    """Delete dead letters that are older than their queues keep them, up to *limit* of each queue."""
    rows = call(schema, "fq_prune_dead_letters", "prune dead letters", limit=limit).rows(connection)
    return list(map(PrunedDeadLetters._make, rows))


def dead_letter_groups(connection: Connection, target: Target, *, limit: int, ids: int) -> list[DeadLetterGroup]:
    """The newest dead letters by kind, reason and error, the largest group first.

    Args:
        connection: Where to ask.
        target: The queue.
        limit: Most dead letters to read.
        ids: Most ids to return of each group.
    """
    doing = f"read the dead letters of queue {target.queue!r}"
    rows = read(connection, target.schema, "fq_dead_letter_groups", doing, queue=target.queue, limit=limit, ids=ids)
    return [DeadLetterGroup(message_ids=tuple(row.pop("message_ids")), **row) for row in rows]
