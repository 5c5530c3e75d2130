"""Rows of table ``changes``: what a transaction did to messages, from the rows that it inserted and deleted.

A transaction gives one row for each message, with its final effect on the message, and none for a message that it both
added and ended. The first half of the module decodes pgoutput, PostgreSQL's plugin for logical decoding, in protocol
version 1 (chapter "Logical Replication Message Formats" of PostgreSQL's manual), and knows no table.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The plugin counts microseconds from the year 2000 on.
_EPOCH_MICROSECONDS = 946_684_800_000_000
_COMMIT = Struct("!xxQQq")
_NUMBER = Struct("!I")
_SHORT = Struct("!H")
# The columns of a row begin after the kind of the message, the number of the table, and the kind of the row.
_ROW = 6
_IS_TEXT = ord("t")
_UNREADABLE = (KeyError, ValueError, IndexError, struct_error)


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction: the position (LSN) after its commit record, and the time in microseconds since 1970."""

    end: int
    time: int


@dataclass(frozen=True, slots=True)
class Change:
    """An inserted or deleted row, kept as pgoutput encodes it, since decoded columns take three times the memory."""

    table: str
    is_insert: bool
    columns: tuple[str, ...]
    message: bytes

    def row(self) -> dict[str, str | None]:
        """Return the columns as text; for a deleted row, only the columns of its key have values."""
        try:
            return dict(zip(self.columns, _values(self.message), strict=True))
        except _UNREADABLE as error:
            raise _unreadable(error) from error

    def number(self, name: str) -> int:
        """Return a column that is a number and never null. The call is cheap for the first columns of a table."""
        try:
            for column, value in zip(self.columns, _values(self.message), strict=False):
                if column == name and value is not None:
                    return int(value)
        except _UNREADABLE as error:
            raise _unreadable(error) from error
        raise _unreadable(KeyError(name))


class PgOutput:
    """Decodes the messages of one read of a replication slot. Pass all in order: a table's columns precede its rows."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[str, tuple[str, ...]]] = {}

    def decoded(self, message: bytes) -> Commit | Change | None:
        kind = message[:1]
        try:
            if kind in (b"I", b"D"):
                table, columns = self._tables[_NUMBER.unpack_from(message, 1)[0]]
                return Change(table, kind == b"I", columns, message)
            if kind == b"C":
                _, end, microseconds = _COMMIT.unpack(message)
                return Commit(end, _EPOCH_MICROSECONDS + microseconds)
            if kind == b"R":
                self._keep_table(message)
        except _UNREADABLE as error:
            raise _unreadable(error) from error
        return None

    def _keep_table(self, message: bytes) -> None:
        (number,) = _NUMBER.unpack_from(message, 1)
        _, at = _text(message, 5)
        name, at = _text(message, at)
        (count,) = _SHORT.unpack_from(message, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            column, at = _text(message, at + 1)
            columns.append(column)
            at += 8
        self._tables[number] = (name, tuple(columns))


def _text(message: bytes, start: int) -> tuple[str, int]:
    end = message.index(0, start)
    return message[start:end].decode(), end + 1


def _values(message: bytes) -> Iterator[str | None]:
    at = _ROW
    (count,) = _SHORT.unpack_from(message, at)
    at += 2
    for _ in range(count):
        kind = message[at]
        at += 1
        # A null (n), or a separately stored value that did not change (u), comes without a value.
        if kind != _IS_TEXT:
            yield None
            continue
        end = at + 4 + int.from_bytes(message[at : at + 4])
        yield message[at + 4 : end].decode()
        at = end


def _unreadable(error: Exception) -> PipelineError:
    return PipelineError(f"a message of pgoutput cannot be read: {error}; report it as a bug")


Row = dict[str, Any]

_NUMBERS = ("channel_id", "enqueued_at", "priority", "cost")
_TEXTS = ("queue", "channel", "kind", "key", "outcome")
# In these tables a cost of null means 1.
_ALWAYS_COST = ("fq_message", "fq_dead_letter")
# The outcomes that tell how a message ended. If it was buried, its row in fq_dead_letter tells so. After any other
# outcome the message remained; if it is gone, something else ended it in the same transaction.
_ENDS = ("completed", "cancelled")


def rows(messages: Iterable[bytes], after: int, upto: int) -> Iterator[Row]:
    """Yield the rows of transactions that end between two positions (LSN), the second inclusive, in commit order.

    A row lacks its queue and channel if the WAL does not tell them. Instants are microseconds since the epoch.
    """
    decoder = PgOutput()
    transaction = _Transaction()
    for message in messages:
        match decoder.decoded(message):
            case Change() as change:
                transaction.add(change)
            case Commit(end, time):
                if after < end <= upto:
                    yield from transaction.rows(end, time)
                transaction = _Transaction()


class _Transaction:
    def __init__(self) -> None:
        # For each message, whether it existed before the transaction. Messages that were touched first come first.
        self._was_there: dict[int, bool] = {}
        self._messages: dict[int, Change] = {}
        self._ends: dict[str, dict[int, Change]] = {"fq_history": {}, "fq_dead_letter": {}}
        self._redriven: set[int] = set()

    def add(self, change: Change) -> None:
        if change.table == "fq_message":
            identity = change.number("id")
            self._was_there.setdefault(identity, not change.is_insert)
            if change.is_insert:
                self._messages[identity] = change
            else:
                self._messages.pop(identity, None)
        elif change.is_insert and change.table in self._ends:
            self._ends[change.table][change.number("message_id")] = change
        elif change.table == "fq_dead_letter":
            self._redriven.add(change.number("message_id"))

    def rows(self, end: int, time: int) -> Iterator[Row]:
        for identity, was_there in self._was_there.items():
            added = self._messages.get(identity)
            row: Row = {"lsn": end, "committed_at": time, "message_id": identity}
            if added is not None:
                there = "moved" if was_there else "enqueued"
                row["change"] = "redriven" if identity in self._redriven else there
                yield row | _columns(added)
            elif was_there:
                row["change"] = "ended"
                for table, ended in self._ends.items():
                    if (said := ended.get(identity)) is not None:
                        row |= _end(table, _columns(said))
                yield row


def _end(table: str, columns: Row) -> Row:
    """Return how a message ended, as part of a row of ``changes``. *columns* is the message's new row in *table*."""
    if table == "fq_dead_letter":
        outcome: str | None = "buried"
    else:
        outcome = columns["outcome"] if columns["outcome"] in _ENDS else None
    return {name: value for name, value in columns.items() if value is not None} | {"outcome": outcome}


def _columns(change: Change) -> Row:
    given = change.row()
    due = given.get("dequeue_at")
    row: Row = {name: given.get(name) for name in _TEXTS}
    row |= {name: int(value) for name in _NUMBERS if (value := given.get(name)) is not None}
    row["group"] = given.get("group_id")
    row["due_at"] = int(due) if due is not None and not due.startswith("-") else None
    if change.table in _ALWAYS_COST:
        row.setdefault("cost", 1)
    return row
