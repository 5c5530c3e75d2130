"""Text of COPY: the server sends rows as text, and Arrow parses them without a Python object a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import pq
from pyarrow import csv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from psycopg.pq.abc import PGresult

# No byte of COPY's text means two things: ends of lines and tabs within values are escaped. An empty line is the empty
# text of a frame with one column.
PARSE = csv.ParseOptions(
    delimiter="\t", quote_char=False, double_quote=False, escape_char=False, ignore_empty_lines=False
)
"""The options by which Arrow parses it."""

NULL = "\\N"
"""A null in it."""

_CHUNK_BYTES = 4 << 20
# Placeholder of a backslash until the other escapes are replaced: the one character that no text of the server has.
_NUL = "\0"
_ESCAPES = {"\\\\": _NUL, "\\n": "\n", "\\t": "\t", "\\r": "\r", "\\b": "\b", "\\f": "\f", "\\v": "\v", _NUL: "\\"}


def copied_text(connection: psycopg.Connection, query: str, parameters: Mapping[str, object]) -> Iterator[bytearray]:
    """The rows of a query, in chunks of about four megabytes of text; at least one row each.

    Args:
        connection: With client encoding UTF-8. Busy until the iterator ends; closed if that fails or is not exhausted.
        query: A select.
        parameters: Its ``%(name)s`` values.
    """
    wire = connection.pgconn
    copy = psycopg.ClientCursor(connection).mogrify(f"copy ({query}) to stdout", parameters)
    wire.send_query(copy.encode())
    done = False
    try:
        _expect(wire.get_result(), pq.ExecStatus.COPY_OUT)
        chunk = bytearray()
        receive = wire.get_copy_data
        while True:
            # One message of the protocol is one row, so that a chunk never ends within a row. Rows are not kept as
            # objects: the garbage collector would take more time for so many than all the rest.
            length, row = receive(0)
            if length <= 0:
                break
            chunk += row
            if len(chunk) >= _CHUNK_BYTES:
                yield chunk
                chunk = bytearray()
        _expect(wire.get_result(), pq.ExecStatus.COMMAND_OK)
        wire.get_result()
        done = True
        if chunk:
            yield chunk
    finally:
        if not done:
            # The server may still send rows, which nothing reads.
            connection.close()


def _expect(result: PGresult | None, status: pq.ExecStatus) -> None:
    """Raise what the server said instead, if it did."""
    if result is None or result.status != status:
        raise (
            psycopg.errors.error_from_result(result) if result else psycopg.OperationalError("the connection was lost")
        )


def unescaped(texts: pa.Array) -> pa.Array:
    """Texts of COPY without its escapes."""
    characters = texts.buffers()[2]
    if characters is None or b"\\" not in characters.to_pybytes():
        return texts
    for escaped, meant in _ESCAPES.items():
        texts = pc.replace_substring(texts, pattern=escaped, replacement=meant)
    return texts
