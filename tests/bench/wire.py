"""A thin client on libpq, so that the load generator's own share of the two cores stays small and equal on all sides.

It prepares each statement once, speaks binary both ways, and never decodes a column that the loop does not need.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psycopg import pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

INT8, INT4, TEXT, INT8_ARRAY, INT4_ARRAY, TID_ARRAY = 20, 23, 25, 1016, 1007, 1010
_ELEMENT = {INT8_ARRAY: INT8, INT4_ARRAY: INT4, TID_ARRAY: 27}


class WireError(Exception):
    """The server refused a statement; the message is the server's."""


def int8(value: int) -> bytes:
    """*value* as the server sends and reads a bigint."""
    return struct.pack("!q", value)


def int4(value: int) -> bytes:
    """*value* as the server sends and reads an integer."""
    return struct.pack("!i", value)


def from_int(value: bytes | None) -> int | None:
    """A number that the server sent, of whatever width."""
    return None if value is None else int.from_bytes(value, "big", signed=True)


def array(oid: int, values: Sequence[bytes | None]) -> bytes:
    """A one-dimensional array of values that are in the server's form already."""
    parts = [struct.pack("!iiiii", 1, 0, _ELEMENT[oid], len(values), 1)]
    for value in values:
        parts.append(b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value)
    return b"".join(parts)


@dataclass(slots=True)
class Wire:
    """One connection, in autocommit unless the loop itself sends begin and commit.

    Attributes:
        conninfo: what libpq connects to.
    """

    conninfo: str
    _connection: pq.abc.PGconn = field(init=False)
    _known: set[bytes] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._connection = pq.PGconn.connect(self.conninfo.encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise WireError(self._connection.get_error_message())

    def run(self, sql: str) -> pq.abc.PGresult:
        """Run *sql* as simple text."""
        return self._checked(self._connection.exec_(sql.encode()))

    def call(self, name: str, sql: str, oids: Iterable[int], values: Sequence[bytes | None]) -> pq.abc.PGresult:
        """Run *sql*, prepared under *name* on its first use."""
        key = name.encode()
        if key not in self._known:
            self._checked(self._connection.prepare(key, sql.encode(), list(oids)))
            self._known.add(key)
        binary = [pq.Format.BINARY] * len(values)
        return self._checked(self._connection.exec_prepared(key, values, binary, pq.Format.BINARY))

    def number(self, sql: str) -> int:
        """The single number that *sql* yields."""
        value = self.run(sql).get_value(0, 0)
        return int(value or 0)

    def close(self) -> None:
        """End the connection."""
        self._connection.finish()

    def _checked(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise WireError(result.get_error_message())
        return result
