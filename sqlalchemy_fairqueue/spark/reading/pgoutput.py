"""Messages of pgoutput, the logical decoding plugin of PostgreSQL, in version 1 of its protocol.

It knows no table. PostgreSQL's manual describes the messages in the chapter "Logical Replication Message Formats".
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The plugin counts from 2000 on.
_EPOCH_MICROSECONDS = 946_684_800_000_000
_COMMIT = Struct("!xxQQq")
_NUMBER = Struct("!I")
_SHORT = Struct("!H")
# After the kind of the message, the number of the table, and the kind of the row.
_ROW = 6
_IS_TEXT = ord("t")
_UNREADABLE = (KeyError, ValueError, IndexError, struct_error)


@dataclass(frozen=True, slots=True)
class Commit:
    """The last message of a transaction, whose changes are all those after the commit before.

    Attributes:
        end: The position (LSN) at which its commit record ends.
        time: When it committed, by the server's clock: microseconds since the epoch.
    """

    end: int
    time: int


@dataclass(frozen=True, slots=True)
class Change:
    """A row that was inserted or deleted. Its message is kept as it is: decoded columns take three times its memory.

    Attributes:
        table: The table, without its schema.
        is_insert: Whether it was inserted.
        columns: The names of the columns.
        message: The message.
    """

    table: str
    is_insert: bool
    columns: tuple[str, ...]
    message: bytes

    def row(self) -> dict[str, str | None]:
        """The columns as text; of a row that was deleted, those of its key have a value."""
        try:
            return dict(zip(self.columns, _values(self.message), strict=True))
        except _UNREADABLE as error:
            raise _unreadable(error) from error

    def number(self, name: str) -> int:
        """The value of a column that is a number and never null. It is cheap for the first columns of a table."""
        try:
            for column, value in zip(self.columns, _values(self.message), strict=False):
                if column == name and value is not None:
                    return int(value)
        except _UNREADABLE as error:
            raise _unreadable(error) from error
        raise _unreadable(KeyError(name))


class PgOutput:
    """Decodes the messages of one read of a slot, in their order: the columns of a table come before its rows."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[str, tuple[str, ...]]] = {}

    def decoded(self, message: bytes) -> Commit | Change | None:
        """The message; None for kinds that tell of no insert, delete or commit.

        Raises:
            PipelineError: The message is not one of pgoutput.
        """
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
    """The text that ends with a zero byte, and where the next field begins."""
    end = message.index(0, start)
    return message[start:end].decode(), end + 1


def _values(message: bytes) -> Iterator[str | None]:
    """The values of the row in an insert or delete."""
    at = _ROW
    (count,) = _SHORT.unpack_from(message, at)
    at += 2
    for _ in range(count):
        kind = message[at]
        at += 1
        # Of n (null) and u (unchanged, and stored apart) there is no value.
        if kind != _IS_TEXT:
            yield None
            continue
        end = at + 4 + int.from_bytes(message[at : at + 4])
        yield message[at + 4 : end].decode()
        at = end


def _unreadable(error: Exception) -> PipelineError:
    return PipelineError(f"a message of pgoutput cannot be read: {error}; report it as a bug")
