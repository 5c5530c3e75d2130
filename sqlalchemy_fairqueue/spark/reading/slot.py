"""Reads and moves the replication slot of a stream of changes.

Reads peek: they do not move the slot, and can be repeated. Only :func:`advance` moves it. Positions (LSN) are whole
numbers here. A read may end only at the end of a commit record, or of the last record in the WAL. If the slot were
moved into the middle of a commit record, the server would never send that transaction again.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg import errors

from sqlalchemy_fairqueue.spark.connections import query, statement
from sqlalchemy_fairqueue.spark.errors import DataLoss, PipelineError
from sqlalchemy_fairqueue.spark.options import check_slot_name
from sqlalchemy_fairqueue.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    T = TypeVar("T")

MOST_CHANGES = 2**31 - 1
_BUSY_SECONDS = 30.0
_PAUSE_SECONDS = 0.1
# How many messages of pgoutput to decode for each change. A transaction with one change has three: begin, change and
# commit. The number is twice that, since the slot may still have the previous micro-batch.
_MESSAGES_OF_CHANGES = 6
_COLUMNS = {
    "fq_message": "id, channel_id, kind, dequeue_at, enqueued_at, key, priority, cost, group_id",
    "fq_dead_letter": "message_id, queue, channel_id, kind, enqueued_at, key, priority, cost",
    "fq_history": "message_id, queue, channel_id, channel, kind, enqueued_at, outcome, cost, group_id",
}
_PUBLICATIONS = "select pubname::text from pg_publication where pubname = any(%s::text[])"
_ADVANCE = "select pg_catalog.pg_replication_slot_advance(%(slot)s, %(upto)s::text::pg_lsn)"


class SlotUnusable(PipelineError):
    """The replication slot of a stream of changes, or one of its publications, cannot be read."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """State of a replication slot and of the server's WAL.

    Attributes:
        confirmed: The slot was advanced to here: earlier changes cannot be read again.
        restart: The server keeps the WAL for the slot from here on.
        insert: The end of the last record in the WAL.
        flushed: The WAL can be decoded up to here, which may be within a record.
    """

    confirmed: int
    restart: int
    insert: int
    flushed: int


def changes_setup(slot: str, schema: str = "public") -> list[str]:
    """Return the statements that create a slot for ``table="changes"`` and its publications, in order.

    Run each in its own transaction, as the owner of fairqueue's tables; the last one, which creates the slot, needs the
    attribute REPLICATION. A slot reads only publications that were created before it. As soon as the slot exists, the
    server keeps the WAL until a stream has read it.

    Args:
        slot: Up to 55 of the characters a-z, 0-9 and _. One publication has this name, the other ``SLOT_history``.

    Raises:
        BadOption: The name is not allowed.
    """
    check_slot_name(slot)
    first, second = map(quoted, _publications(slot))
    tables = {name: f"{quoted(schema)}.{name} ({columns})" for name, columns in _COLUMNS.items()}
    history = tables.pop("fq_history")
    by_root = "publish = 'insert', publish_via_partition_root = true"
    return [
        f"create publication {first} for table {', '.join(tables.values())} with (publish = 'insert, delete')",
        f"create publication {second} for table {history} with ({by_root})",
        f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')",
    ]


def slot_state(connection: psycopg.Connection, slot: str, schema: str) -> SlotState:
    """Return the state of a replication slot, or raise an error if the slot cannot be read.

    Raises:
        SlotUnusable: The slot does not exist, belongs to another database or plugin, or the server is a standby.
        DataLoss: The server has invalidated the slot, since it removed unread WAL or for another reason.
    """
    [row] = query(connection, "slot_state", {"slot": slot})
    plugin, database, status, confirmed, restart, here, level, is_standby, reason, insert, flushed = row
    if is_standby:
        raise SlotUnusable(
            "the server is a standby, and changes are read from the primary: connect to it (several hosts and "
            "target_session_attrs=read-write in the DSN)"
        )
    if plugin is None and database is None:
        if level != "logical":
            raise SlotUnusable(
                f"the server has wal_level = {level}, so that nothing can be decoded; set wal_level = logical, restart "
                f"the server, and run {_statements(slot, schema)}"
            )
        names = {name for (name,) in connection.execute(_PUBLICATIONS, [list(_publications(slot))]).fetchall()}
        raise SlotUnusable(f"there is no replication slot {slot!r}; run {_statements(slot, schema, names)}")
    if plugin != "pgoutput":
        raise SlotUnusable(
            f"replication slot {slot!r} has the plugin {plugin or 'of physical replication'!r}, and not pgoutput; "
            "name a slot of its own for this stream"
        )
    if database != here:
        raise SlotUnusable(
            f"replication slot {slot!r} is of database {database!r}, and the connection leads to {here!r}; slots have "
            "names for the whole server: name another one"
        )
    if status == "lost" or restart is None or confirmed is None:
        lost = f"the server has removed WAL that replication slot {slot!r} had not read"
        # The server reports the reason since version 17.
        if reason not in {None, "wal_removed"}:
            lost = f"the server has given up replication slot {slot!r} ({reason})"
        raise DataLoss(
            f"{lost}, so that changes are lost; drop the slot, make it anew, and begin with a new checkpoint; "
            "max_slot_wal_keep_size bounds what slots keep"
        )
    return SlotState(confirmed, restart, insert, flushed)


def check_publications(connection: psycopg.Connection, slot: str, schema: str) -> None:
    """Raise SlotUnusable if the publications lack a table of the stream, whose rows would be missing silently."""
    first, second = _publications(slot)
    publications = [second if table == "fq_history" else first for table in _COLUMNS]
    values = {"tables": list(_COLUMNS), "publications": publications, "schema": schema}
    missing = [name for (name,) in query(connection, "unpublished_tables", values)]
    if missing:
        raise SlotUnusable(
            f"publications {first!r} and {second!r} of replication slot {slot!r} do not publish {', '.join(missing)}; "
            f"drop the slot and the publications, and run {_statements(slot, schema)}"
        )


def next_end(connection: psycopg.Connection, slot: str, start: int, most: int | None, upto: int | None) -> int | None:
    """Return the end of a read that begins at *start*, or None if nothing is left to read.

    The read has up to *most* changes, but at least one whole transaction. Transactions that end after *upto* are left
    out. Call this outside of a transaction.
    """
    changes = None if most is None else _MESSAGES_OF_CHANGES * most
    while True:
        if changes is not None and changes > MOST_CHANGES:
            changes = None
        values = _peek_values(slot, upto, changes) | {"start": lsn_text(start), "most": most or MOST_CHANGES}
        end: int | None
        [(end, found, decoded)] = _when_free(connection, slot, partial(query, connection, "next_end", values))
        if most is None or changes is None or found >= most or decoded < changes:
            return end
        changes *= 2


def messages(connection: psycopg.Connection, slot: str, upto: int) -> Iterator[bytes]:
    """Yield the messages of pgoutput for all transactions that a replication slot has up to a position."""
    copy = psycopg.ClientCursor(connection).mogrify(statement("slot_messages"), _peek_values(slot, upto, None))

    def begun() -> tuple[bytes | None, Iterator[bytes]]:
        # The server takes the slot, and decodes all messages, before it sends the first row.
        found = _copied(connection, copy)
        return next(found, None), found

    first, others = _when_free(connection, slot, begun)
    if first is not None:
        yield first
        yield from others


def advance(connection: psycopg.Connection, slot: str, upto: int) -> None:
    """Advance a replication slot: nothing before *upto* can be read again, and the server may remove that WAL."""
    values = {"slot": slot, "upto": lsn_text(upto)}
    _when_free(connection, slot, partial(connection.execute, _ADVANCE, values))


def lsn_text(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _copied(connection: psycopg.Connection, query: str) -> Iterator[bytes]:
    with connection.cursor().copy(query.encode()) as copy:
        copy.set_types(["bytea"])
        for (message,) in copy.rows():
            yield message


def _when_free(connection: psycopg.Connection, slot: str, call: Callable[[], T]) -> T:
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            with _slot_errors(connection, slot):
                return call()
        except _SlotBusy as error:
            if time.monotonic() > until:
                raise SlotUnusable(
                    f"{error}; a slot is for one stream: end the other reader, or give this stream a slot of its own"
                ) from error.__cause__
            time.sleep(_PAUSE_SECONDS)


class _SlotBusy(SlotUnusable):
    """Another connection reads the replication slot."""


@contextmanager
def _slot_errors(connection: psycopg.Connection, slot: str) -> Iterator[None]:
    """Raise SlotUnusable in place of an error of PostgreSQL that the user of a replication slot can fix."""
    skipped: list[str] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == errors.ObjectNotInPrerequisiteState.sqlstate:
            skipped.append(notice.message_primary or "")

    connection.add_notice_handler(note)
    try:
        yield
    except errors.ObjectInUse as error:
        raise _SlotBusy(f"replication slot {slot!r} is in use: {_said(error)}") from error
    except errors.InsufficientPrivilege as error:
        raise SlotUnusable(
            f"the role may not read replication slot {slot!r}: {_said(error)}; alter role ... replication"
        ) from error
    except errors.UndefinedObject as error:
        raise _unpublished(slot, _said(error)) from error
    finally:
        connection.remove_notice_handler(note)
    # Since version 18, the server only warns of a missing publication.
    if skipped:
        raise _unpublished(slot, skipped[0])


def _unpublished(slot: str, said: str) -> SlotUnusable:
    return SlotUnusable(
        f"replication slot {slot!r} has changes that were not published: {said}; make its publications before the "
        "slot: drop the slot, make it anew, and begin with a new checkpoint"
    )


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or type(error).__name__


def _peek_values(slot: str, upto: int | None, changes: int | None) -> dict[str, object]:
    publications = ",".join(map(quoted, _publications(slot)))
    return {
        "slot": slot,
        "upto": None if upto is None else lsn_text(upto),
        "changes": changes,
        "publications": publications,
    }


def _publications(slot: str) -> tuple[str, str]:
    """Return the names of two publications: of messages and dead letters, and of the history without its deletes."""
    return slot, f"{slot}_history"


def _statements(slot: str, schema: str, made: Collection[str] = ()) -> str:
    *publications, last = changes_setup(slot, schema)
    missing = [one for name, one in zip(_publications(slot), publications, strict=True) if name not in made]
    return "; ".join([*missing, last])
