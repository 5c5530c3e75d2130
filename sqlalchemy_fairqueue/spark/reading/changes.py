"""Rows of table ``changes``: what a transaction did to messages, from the rows that it inserted and deleted.

A transaction gives at most one row a message: what it left. A message that it both added and ended gives none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.reading.pgoutput import Change, Commit, PgOutput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Row = dict[str, Any]

_NUMBERS = ("channel_id", "enqueued_at", "priority", "cost")
_TEXTS = ("queue", "channel", "kind", "key", "outcome")
# Null means 1 there.
_ALWAYS_COST = ("fq_message", "fq_dead_letter")
# Of an attempt that ended otherwise the message was left, and something else ended it in the same transaction.
_ENDS = ("completed", "cancelled")


def rows(messages: Iterable[bytes], after: int, upto: int) -> Iterator[Row]:
    """The rows of the transactions that end after a position and up to another one, in the order of their commits.

    A row has no queue and no channel where the WAL does not tell them. Instants are microseconds since the epoch.

    Args:
        messages: Those of pgoutput.
        after: A position (LSN).
        upto: Another one.
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
    """The changes of one transaction, which are decoded when it has ended."""

    def __init__(self) -> None:
        # In the order in which the transaction touched them first: whether the message was there before.
        self._was_there: dict[int, bool] = {}
        self._messages: dict[int, Change] = {}
        self._ends: dict[str, dict[int, Change]] = {"fq_history": {}, "fq_dead_letter": {}}
        self._redriven: set[int] = set()

    def add(self, change: Change) -> None:
        """Take note of a change."""
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
        """What it left, a row a message."""
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
    """What the row that a table got says of the end of its message."""
    if table == "fq_dead_letter":
        outcome: str | None = "buried"
    else:
        outcome = columns["outcome"] if columns["outcome"] in _ENDS else None
    return {name: value for name, value in columns.items() if value is not None} | {"outcome": outcome}


def _columns(change: Change) -> Row:
    """The columns of a row that was inserted, as the table of changes has them."""
    given = change.row()
    due = given.get("dequeue_at")
    row: Row = {name: given.get(name) for name in _TEXTS}
    row |= {name: int(value) for name in _NUMBERS if (value := given.get(name)) is not None}
    row["group"] = given.get("group_id")
    row["due_at"] = int(due) if due is not None and not due.startswith("-") else None
    if change.table in _ALWAYS_COST:
        row.setdefault("cost", 1)
    return row
