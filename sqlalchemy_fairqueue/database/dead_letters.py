"""Dead letters: read, redriven, purged and pruned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.codecs import decoded, headers_of
from sqlalchemy_fairqueue.database.calls import may_notify
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
    """A filter of dead letters. All fields that are not None must be met.

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

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that all functions of dead letters take."""
        return {"ids": self.ids, "channel": self.channel, "kind": self.kind}


def dead_letters(
    connection: Connection,
    target: Target,
    which: DeadLetterFilter,
    *,
    limit: int,
    after: DeadLetterInfo | None,
    codec: Codec,
) -> list[DeadLetterInfo]:
    """Dead letters of a queue, the oldest death first; *after* is the last one of the page before."""
    rows = target.read(
        connection,
        "fq_dead_letters",
        f"read the dead letters of queue {target.queue!r}",
        **which.parameters(),
        limit=limit,
        died_at=None if after is None else instant_microseconds(after.died_at),
        message_id=None if after is None else after.message_id,
        error=which.error,
        since=None if which.since is None else instant_microseconds(which.since),
        until=None if which.until is None else instant_microseconds(which.until),
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


def redrive(
    connection: Connection, target: Target, which: DeadLetterFilter, *, limit: int, notify: bool
) -> dict[int, str]:
    """Give dead letters another life, the oldest death first. Returns the outcome of each by its id."""
    parameters = which.parameters() | {"limit": limit, "notify": may_notify(connection, notify)}
    rows = target.call("fq_redrive", f"redrive dead letters of queue {target.queue!r}", **parameters)
    return dict(map(tuple, rows.rows(connection)))


def purge_dead(connection: Connection, target: Target, which: DeadLetterFilter, *, until: datetime | None) -> int:
    """Delete dead letters for good, with *until* only those that died before then. Returns how many."""
    parameters = which.parameters() | {"before": None if until is None else instant_microseconds(until)}
    doing = f"purge dead letters of queue {target.queue!r}"
    return target.call("fq_purge_dead", doing, **parameters).value(connection)


def dead_letter_groups(connection: Connection, target: Target, *, limit: int, ids: int) -> list[DeadLetterGroup]:
    """Group the newest *limit* dead letters by kind, reason and error, the largest first, with *ids* ids each."""
    doing = f"read the dead letters of queue {target.queue!r}"
    rows = target.read(connection, "fq_dead_letter_groups", doing, limit=limit, ids=ids)
    return [DeadLetterGroup(message_ids=tuple(row.pop("message_ids")), **row) for row in rows]
