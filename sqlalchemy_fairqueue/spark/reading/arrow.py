"""Arrow batches from COPY: the server sends rows as text, and Arrow parses them without a Python object a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import pq
from pyarrow import csv
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from psycopg.pq.abc import PGresult

    from sqlalchemy_fairqueue.spark.reading.tables import Column

# With chunks of one megabyte, Spark takes a quarter longer.
_CHUNK_BYTES = 4 << 20
_ARROW: dict[DataType, pa.DataType] = {
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),
    BooleanType(): pa.bool_(),
    BinaryType(): pa.binary(),
    TimestampType(): pa.timestamp("us", tz="UTC"),
    DayTimeIntervalType(): pa.duration("us"),
}
_MICROSECONDS = (TimestampType(), DayTimeIntervalType())
_NULL = "\\N"
# Placeholder of a backslash until the other escapes are replaced: the one character that no text of the server has.
_NUL = "\0"
_ESCAPES = {"\\\\": _NUL, "\\n": "\n", "\\t": "\t", "\\r": "\r", "\\b": "\b", "\\f": "\f", "\\v": "\v", _NUL: "\\"}


def batches(
    connection: psycopg.Connection, query: str, parameters: Mapping[str, object], columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, in batches of about four megabytes of text; at least one row each.

    Args:
        connection: With client encoding UTF-8. Busy until the iterator ends; closed if that fails or is not exhausted.
        query: A select that gives the :func:`expressions` of the columns.
        parameters: Its ``%(name)s`` values.
        columns: The columns of the query.
    """
    parser = _Parser(columns)
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
                yield parser.batch(chunk)
                chunk = bytearray()
        _expect(wire.get_result(), pq.ExecStatus.COMMAND_OK)
        wire.get_result()
        done = True
        if chunk:
            yield parser.batch(chunk)
    finally:
        if not done:
            # The server may still send rows, which nothing reads.
            connection.close()


def expressions(columns: Sequence[Column]) -> list[str]:
    """The expressions of the columns in COPY."""
    return [_expression(column, _base(column, columns)) for column in columns]


def _expression(column: Column, base: Column | None) -> str:
    if column.type == BinaryType():
        return f"encode({column.sql}, 'hex')"
    # Fewer digits to write, to send and to read.
    return f"{column.sql} - {base.sql}" if base else column.sql


def _base(column: Column, columns: Sequence[Column]) -> Column | None:
    """The column that it is told as a difference to, where that is read too."""
    return next((one for one in columns if one.name == column.since), None)


def _expect(result: PGresult | None, status: pq.ExecStatus) -> None:
    """Raise what the server said instead, if it did."""
    if result is None or result.status != status:
        raise (
            psycopg.errors.error_from_result(result) if result else psycopg.OperationalError("the connection was lost")
        )


class _Parser:
    def __init__(self, columns: Sequence[Column]) -> None:
        names = [column.name for column in columns]
        bases = [_base(column, columns) for column in columns]
        self._columns = columns
        self._names = names
        self._bases = [names.index(base.name) if base else None for base in bases]
        self._schema = pa.schema([pa.field(one.name, _arrow(one.type), nullable=one.nullable) for one in columns])
        # No byte of COPY's text means two things: ends of lines and tabs within values are escaped. An empty line is
        # the empty text of a frame with one column.
        self._parse = csv.ParseOptions(
            delimiter="\t", quote_char=False, double_quote=False, escape_char=False, ignore_empty_lines=False
        )
        self._convert = csv.ConvertOptions(
            column_types={column.name: _parsed(column.type) for column in columns},
            null_values=[_NULL],
            strings_can_be_null=True,
            true_values=["t"],
            false_values=["f"],
        )

    def batch(self, text: bytearray) -> pa.RecordBatch:
        # The tasks use all cores already.
        read = csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(text) + 1)
        table = csv.read_csv(
            pa.py_buffer(text), read_options=read, parse_options=self._parse, convert_options=self._convert
        ).combine_chunks()
        values = [column.chunk(0) for column in table.columns]
        arrays = [
            _typed(one if base is None else pc.add(one, values[base]), column.type)
            for one, base, column in zip(values, self._bases, self._columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _arrow(kind: DataType) -> pa.DataType:
    return _ARROW.get(kind, pa.string())


def _parsed(kind: DataType) -> pa.DataType:
    """The type that the text is parsed to."""
    if kind in _MICROSECONDS:
        return pa.int64()
    return pa.string() if kind == BinaryType() else _arrow(kind)


def _typed(values: pa.Array, kind: DataType) -> pa.Array:
    if kind in _MICROSECONDS:
        return values.view(_arrow(kind))
    if kind == BinaryType():
        return pa.array([None if one is None else bytes.fromhex(one) for one in values.to_pylist()], pa.binary())
    return _unescaped(values) if kind == StringType() else values


def _unescaped(texts: pa.Array) -> pa.Array:
    """Texts of COPY without its escapes."""
    characters = texts.buffers()[2]
    if characters is None or b"\\" not in characters.to_pybytes():
        return texts
    for escaped, meant in _ESCAPES.items():
        texts = pc.replace_substring(texts, pattern=escaped, replacement=meant)
    return texts
