"""COPY to Arrow: rows leave the server as CSV and are parsed by Arrow, without a Python object a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
from psycopg import pq
from pyarrow import csv
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from psycopg.pq.abc import PGresult

    from sqlalchemy_fairqueue.spark.reading.tables import Column

_CHUNK_BYTES = 1 << 20
_ARROW: dict[DataType, pa.DataType] = {
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),
    BooleanType(): pa.bool_(),
    BinaryType(): pa.binary(),
    TimestampType(): pa.timestamp("us", tz="UTC"),
    DayTimeIntervalType(): pa.duration("us"),
}
_MICROSECONDS = (TimestampType(), DayTimeIntervalType())


def batches(
    connection: psycopg.Connection, query: str, parameters: Mapping[str, object], columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """What the query gives, in batches of about a megabyte of text; at least one row each.

    Args:
        connection: Its client encoding is UTF-8. Busy until the iterator ends; closed if that fails or is left.
        query: A select that gives the columns in order.
        parameters: Its ``%(name)s`` values.
        columns: What it gives.
    """
    parser = _Parser(columns)
    wire = connection.pgconn
    copy = psycopg.ClientCursor(connection).mogrify(f"copy ({query}) to stdout (format csv)", parameters)
    wire.send_query(copy.encode())
    done = False
    try:
        _expect(wire.get_result(), pq.ExecStatus.COPY_OUT)
        chunk = bytearray()
        # One message of the protocol is one row, so that a chunk never ends within one. Rows are not kept as objects:
        # so many would have the garbage collector take more time than all the rest.
        while (message := wire.get_copy_data(0))[0] > 0:
            chunk += message[1]
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
            # What the server still sends is nobody's.
            connection.close()


def _expect(result: PGresult | None, status: pq.ExecStatus) -> None:
    """Raise what the server said instead, if it did."""
    if result is None or result.status != status:
        raise (
            psycopg.errors.error_from_result(result) if result else psycopg.OperationalError("the connection was lost")
        )


class _Parser:
    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        names = [column.name for column in columns]
        self._schema = pa.schema([pa.field(column.name, _arrow(column.type)) for column in columns])
        self._names = names
        # An empty line is the null of a frame with one column.
        self._parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
        self._convert = csv.ConvertOptions(
            column_types={column.name: _parsed(column.type) for column in columns},
            # Null is nothing between two commas, an empty text is quoted.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        )

    def batch(self, text: bytearray) -> pa.RecordBatch:
        # Tasks share the cores already.
        read = csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(text) + 1)
        table = csv.read_csv(
            pa.py_buffer(text), read_options=read, parse_options=self._parse, convert_options=self._convert
        ).combine_chunks()
        arrays = [_typed(table.column(place).chunk(0), column.type) for place, column in enumerate(self._columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def expression(column: Column) -> str:
    """The column as COPY is to write it."""
    if column.type == BinaryType():
        return f"encode({column.sql}, 'hex')"
    return column.sql


def _arrow(kind: DataType) -> pa.DataType:
    return _ARROW.get(kind, pa.string())


def _parsed(kind: DataType) -> pa.DataType:
    """The type that the text is parsed as."""
    if kind in _MICROSECONDS:
        return pa.int64()
    return pa.string() if kind == BinaryType() else _arrow(kind)


def _typed(values: pa.Array, kind: DataType) -> pa.Array:
    if kind in _MICROSECONDS:
        return values.view(_arrow(kind))
    if kind == BinaryType():
        return pa.array([None if one is None else bytes.fromhex(one) for one in values.to_pylist()], pa.binary())
    return values
