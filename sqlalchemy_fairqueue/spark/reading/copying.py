"""COPY to Arrow: rows leave the server as CSV and are parsed by Arrow, without a Python object a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
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

    import psycopg

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
        connection: Its client encoding is UTF-8. It is busy until the iterator ends.
        query: A select that gives the columns in order.
        parameters: Its ``%(name)s`` values.
        columns: What it gives.
    """
    parser = _Parser(columns)
    with (
        connection.cursor() as cursor,
        cursor.copy(f"copy ({query}) to stdout (format csv)".encode(), parameters) as rows,
    ):
        chunk: list[bytes | bytearray | memoryview] = []
        size = 0
        # One message of the protocol is one row, so that a chunk never ends within one.
        for row in rows:
            chunk.append(row)
            size += len(row)
            if size >= _CHUNK_BYTES:
                yield parser.batch(b"".join(chunk))
                chunk, size = [], 0
        if chunk:
            yield parser.batch(b"".join(chunk))


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

    def batch(self, text: bytes) -> pa.RecordBatch:
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
