"""Arrow batches from COPY: the server sends rows as text, and Arrow parses them without a Python object a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
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

from sqlalchemy_fairqueue.reporting.copying import NULL, PARSE, copied_text, unescaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import psycopg

    from sqlalchemy_fairqueue.spark.reading.tables import Column

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
    """The rows of a query, in batches of about four megabytes of text; at least one row each.

    Args:
        connection: With client encoding UTF-8. Busy until the iterator ends; closed if that fails or is not exhausted.
        query: A select that gives the :func:`expressions` of the columns.
        parameters: Its ``%(name)s`` values.
        columns: The columns of the query.
    """
    parser = _Parser(columns)
    # With chunks of one megabyte, Spark takes a quarter longer.
    for chunk in copied_text(connection, query, parameters):
        yield parser.batch(chunk)


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


class _Parser:
    def __init__(self, columns: Sequence[Column]) -> None:
        names = [column.name for column in columns]
        bases = [_base(column, columns) for column in columns]
        self._columns = columns
        self._names = names
        self._bases = [names.index(base.name) if base else None for base in bases]
        self._schema = pa.schema([pa.field(one.name, arrow_type(one.type), nullable=one.nullable) for one in columns])
        self._convert = csv.ConvertOptions(
            column_types={column.name: _parsed(column.type) for column in columns},
            null_values=[NULL],
            strings_can_be_null=True,
            true_values=["t"],
            false_values=["f"],
        )

    def batch(self, text: bytearray) -> pa.RecordBatch:
        # The tasks use all cores already.
        read = csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(text) + 1)
        table = csv.read_csv(
            pa.py_buffer(text), read_options=read, parse_options=PARSE, convert_options=self._convert
        ).combine_chunks()
        values = [column.chunk(0) for column in table.columns]
        arrays = [
            _typed(one if base is None else pc.add(one, values[base]), column.type)
            for one, base, column in zip(values, self._bases, self._columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def arrow_type(kind: DataType) -> pa.DataType:
    """The type in Arrow of a column's type in Spark."""
    return _ARROW.get(kind, pa.string())


def _parsed(kind: DataType) -> pa.DataType:
    """The type that the text is parsed to."""
    if kind in _MICROSECONDS:
        return pa.int64()
    return pa.string() if kind == BinaryType() else arrow_type(kind)


def _typed(values: pa.Array, kind: DataType) -> pa.Array:
    if kind in _MICROSECONDS:
        return values.view(arrow_type(kind))
    if kind == BinaryType():
        return pa.array([None if one is None else bytes.fromhex(one) for one in values.to_pylist()], pa.binary())
    return unescaped(values) if kind == StringType() else values
