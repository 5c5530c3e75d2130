"""A thin client on libpq: the load generator's own share of two cores stays small, and is the same on all sides.

It prepares each statement once, speaks binary both ways, and decodes no column that the loop does not need.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

INT8: Final = 20
INT4: Final = 23
TEXT: Final = 25
INT8_ARRAY: Final = 1016
INT4_ARRAY: Final = 1007
TID_ARRAY: Final = 1010
_ELEMENT: Final = {INT8_ARRAY: INT8, INT4_ARRAY: INT4, TID_ARRAY: 27}


class WireError(Exception):
    """The server refused a statement; the message is the server's."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement to prepare.

    Attributes:
        name: what it is prepared under.
        sql: its text, with ``$1`` and so on.
        types: the types of its parameters, as oids.
    """

    name: bytes
    sql: bytes
    types: tuple[int, ...]


def int8(value: int) -> bytes:
    """*value* as the server sends and reads a bigint."""
    return struct.pack("!q", value)


def int4(value: int) -> bytes:
    """*value* as the server sends and reads an integer."""
    return struct.pack("!i", value)


def number(value: bytes | None) -> int | None:
    """A number that the server sent, of whatever width."""
    return None if value is None else int.from_bytes(value, "big", signed=True)


def array(oid: int, values: Sequence[bytes]) -> bytes:
    """A one-dimensional array of values that are in the server's form already."""
    parts = [struct.pack("!iiiii", 1, 0, _ELEMENT[oid], len(values), 1)]
    for value in values:
        parts += (len(value).to_bytes(4, "big"), value)
    return b"".join(parts)


def column(answer: PGresult, index: int, rows: int) -> list[bytes]:
    """The first *rows* values of a column, which are not null."""
    value = answer.get_value
    return [value(row, index) or b"" for row in range(rows)]


@dataclass(slots=True)
class Wire:
    """One connection, in autocommit unless the loop itself sends begin and commit.

    Attributes:
        conninfo: what libpq connects to.
    """

    conninfo: str
    _connection: PGconn = field(init=False, repr=False)
    _known: set[bytes] = field(init=False, repr=False, default_factory=set)

    def __post_init__(self) -> None:
        """Connect."""
        self._connection = pq.PGconn.connect(self.conninfo.encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise WireError(self._connection.get_error_message())

    def run(self, sql: str) -> PGresult:
        """Run *sql* as simple text, several statements if need be."""
        return self._checked(self._connection.exec_(sql.encode()))

    def value(self, sql: str) -> str:
        """The single value that *sql* yields, as text."""
        return (self.run(sql).get_value(0, 0) or b"").decode()

    def call(self, statement: Statement, *values: bytes) -> PGresult:
        """Run *statement*, which is prepared on its first use."""
        if statement.name not in self._known:
            self._checked(self._connection.prepare(statement.name, statement.sql, statement.types))
            self._known.add(statement.name)
        formats = [pq.Format.BINARY] * len(values)
        return self._checked(self._connection.exec_prepared(statement.name, values, formats, pq.Format.BINARY))

    def close(self) -> None:
        """End the connection."""
        self._connection.finish()

    def _checked(self, answer: PGresult) -> PGresult:
        if answer.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise WireError(answer.get_error_message())
        return answer
