"""Dead letters: read, redriven, purged and pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.codecs import decoded, headers_of
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.times import instant_microseconds
from sqlalchemy_fairqueue.values.reports import DeadLetterGroup, DeadLetterInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.codecs import Codec
    from sqlalchemy_fairqueue.database.calls import Target


def read_dead_letters(
    connection: Connection,
    target: Target,
    *,
    limit: int,
    after: DeadLetterInfo | None,
    codec: Codec,
    ids: Sequence[int] | None,
    channel: str | None,
    kind: str | None,
    error: str | None,
    since: datetime | None,
    until: datetime | None,
) -> list[DeadLetterInfo]:
    """Dead letters of a queue, the oldest death first; *after* is the last one of the page before."""
    rows = target.read(
        connection,
        "fq_dead_letters",
        f"read the dead letters of {target.named()}",
        limit=limit,
        died_at=None if after is None else instant_microseconds(after.died_at),
        message_id=None if after is None else after.message_id,
        since=None if since is None else instant_microseconds(since),
        until=None if until is None else instant_microseconds(until),
        ids=None if ids is None else list(ids),
        channel=channel,
        kind=kind,
        error=error,
    )
    return [_dead_letter(target, codec, **row) for row in rows]


def _dead_letter(
    target: Target, codec: Codec, headers: str | None, unreadable: str | None, **row: Any
) -> DeadLetterInfo:
    read_headers, refused = headers_of(headers)
    if unreadable is not None:
        refused = PayloadError(f"dead letter {row['message_id']} cannot be read: {unreadable}; purge it")
        row["error"] = str(refused)
    row |= {name: row[name] or "" for name in ("channel", "kind", "reason")}
    result = refused or decoded(codec, row["content"])
    row["content"] = row["content"] or b""
    return DeadLetterInfo(queue=target.queue, headers=read_headers, decoded=result, **row)


def read_dead_letter_groups(connection: Connection, target: Target, *, limit: int, ids: int) -> list[DeadLetterGroup]:
    """Group the newest *limit* dead letters by kind, reason and error, the largest first, with *ids* ids each."""
    doing = f"read the dead letters of queue {target.queue!r}"
    rows = target.read(connection, "fq_dead_letter_groups", doing, limit=limit, ids=ids)
    return [DeadLetterGroup(message_ids=tuple(row.pop("message_ids")), **row) for row in rows]
