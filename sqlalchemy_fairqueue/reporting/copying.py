"""COPY as text: the server sends rows as text, and Arrow parses them without a Python object for each value."""

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

# COPY escapes line ends and tabs in values, so no quotes are needed. With one column, an empty line is an empty text.
_PARSE = csv.ParseOptions(
    delimiter="\t", quote_char=False, double_quote=False, escape_char=False, ignore_empty_lines=False
)
_CHUNK_BYTES = 4 << 20
# Placeholder of a backslash until the other escapes are replaced: NUL, which no text of the server contains.
_NUL = "\0"
_ESCAPES = {"\\\\": _NUL, "\\n": "\n", "\\t": "\t", "\\r": "\r", "\\b": "\b", "\\f": "\f", "\\v": "\v", _NUL: "\\"}


def copied_text(connection: psycopg.Connection, query: str, parameters: Mapping[str, object]) -> Iterator[bytearray]:
    """Yield the rows of a query in chunks of about four megabytes of text, at least one row each.

    The connection needs client encoding UTF-8. It is busy until the iterator ends, and closed after an error or if the
    caller stops early. *parameters* are the values of ``%(name)s`` in the query.
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
            # One message of the protocol is one row, so a chunk never ends within a row. Rows are not kept as objects,
            # since the garbage collector would take more time than everything else.
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
            # The connection is useless: the server may still send rows, which nobody reads.
            connection.close()


def _expect(result: PGresult | None, status: pq.ExecStatus) -> None:
    if result is None or result.status != status:
        raise (
            psycopg.errors.error_from_result(result) if result else psycopg.OperationalError("the connection was lost")
        )


def parsed(text: bytearray, schema: pa.Schema, since: Mapping[str, str], *, use_threads: bool) -> pa.RecordBatch:
    """Parse a chunk of rows, in which instants and durations are microseconds, and binaries are hexadecimal digits.

    A column may be sent as its difference from a base column; *since* maps the column's name to the base column's name.
    """
    read = csv.ReadOptions(column_names=schema.names, use_threads=use_threads, block_size=len(text) + 1)
    convert = csv.ConvertOptions(
        column_types={one.name: _sent(one.type) for one in schema}, null_values=["\\N"], strings_can_be_null=True,
        true_values=["t"], false_values=["f"],
    )  # fmt: skip
    table = csv.read_csv(pa.py_buffer(text), read_options=read, parse_options=_PARSE, convert_options=convert)
    values = {name: column.chunk(0) for name, column in zip(schema.names, table.combine_chunks().columns, strict=True)}
    arrays = [
        _typed(pc.add(values[one.name], values[since[one.name]]) if one.name in since else values[one.name], one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _sent(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int64()
    return pa.string() if pa.types.is_binary(kind) else kind


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind):
        return values.view(kind)
    if pa.types.is_binary(kind):
        return pa.array([None if one is None else bytes.fromhex(one) for one in values.to_pylist()], kind)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(values.indices, _unescaped(values.dictionary))
    return _unescaped(values) if pa.types.is_string(kind) else values


def _unescaped(texts: pa.Array) -> pa.Array:
    characters = texts.buffers()[2]
    if characters is None or b"\\" not in characters.to_pybytes():
        return texts
    for escaped, meant in _ESCAPES.items():
        texts = pc.replace_substring(texts, pattern=escaped, replacement=meant)
    return texts
