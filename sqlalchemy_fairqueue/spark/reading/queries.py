"""Queries of the readers, and their connections.

A filter is pushed down only if the server and Spark mean the same by it: equality of texts that are never null, and
comparisons of the time when an attempt ended. All others stay with Spark.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.types import StringType, TimestampType

from sqlalchemy_fairqueue.spark.connections import connect, find_installation, translated_errors
from sqlalchemy_fairqueue.spark.executors import freeze_modules
from sqlalchemy_fairqueue.spark.reading.tables import batches, expressions
from sqlalchemy_fairqueue.times import instant_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import psycopg
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from sqlalchemy_fairqueue.spark.connections import Installation
    from sqlalchemy_fairqueue.spark.reading.offsets import Position
    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

# To compile a query takes longer than to read a batch.
_SETTINGS = (
    "set jit = off; set client_encoding = 'UTF8'; set default_transaction_read_only = on; "
    "set client_min_messages = warning"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunction of conditions, with their values."""

    clauses: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)

    def also(self, clause: str, **values: object) -> Condition:
        """With one more condition."""
        return Condition((*self.clauses, clause), self.values | values)

    def both(self, other: Condition) -> Condition:
        """With all of another one's conditions."""
        return Condition((*self.clauses, *other.clauses), self.values | other.values)

    @property
    def text(self) -> str:
        """The text after ``where``."""
        return " and ".join(self.clauses) or "true"


@contextmanager
def reading_connection(options: ReadOptions, purpose: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """A connection for reading, outside of a transaction, and the schema as statements quote it; closed afterwards."""
    freeze_modules()
    connection = connect(options, purpose, autocommit=True)
    try:
        yield connection, prepared_installation(connection, options).quoted
    finally:
        connection.close()


def prepared_installation(connection: psycopg.Connection, options: ReadOptions) -> Installation:
    """Set up a new connection for reading; returns the installation that it leads to."""
    with translated_errors("prepare to read"):
        connection.execute(_SETTINGS)
        return find_installation(connection, options.schema)


def base_condition(table: Table, options: ReadOptions) -> Condition:
    """The condition of the options."""
    condition = Condition()
    if options.queue is not None:
        condition = condition.also(f"{table.queue} = %(queue)s", queue=options.queue)
    if options.channels:
        condition = condition.also(f"{table.channel} = any(%(channels)s::text[])", channels=list(options.channels))
    since, until = options.finished
    if options.since is not None:
        condition = condition.also("h.finished_at >= %(since)s", since=since)
    if options.until is not None:
        condition = condition.also("h.finished_at < %(until)s", until=until)
    return condition


def position_range(condition: Condition, after: Position, upto: Position) -> Condition:
    """The condition with a range of positions: after one, up to another, included."""
    return condition.also(
        "(h.recorded_xid, h.id) > (%(after_xid)s::text::xid8, %(after_id)s)"
        " and (h.recorded_xid, h.id) <= (%(upto_xid)s::text::xid8, %(upto_id)s)",
        after_xid=str(after.xid),
        after_id=after.id,
        upto_xid=str(upto.xid),
        upto_id=upto.id,
    )


def rows(
    connection: psycopg.Connection, schema: str, table: Table, columns: Sequence[Column], condition: Condition
) -> Iterator[pa.RecordBatch]:
    """The rows of a condition, as Arrow batches."""
    names = ", ".join(expressions(columns))
    query = " ".join(["select", names, "from", table.source.format(schema=schema), "where", condition.text])
    with translated_errors(f"read table {table.name}"):
        yield from batches(connection, query, condition.values, columns)


_COMPARISONS: dict[type, str] = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


def pushed_down(filters: Iterable[Filter], table: Table) -> tuple[Condition, list[Filter]]:
    """The condition of the filters that the server evaluates, and the filters that are left to Spark."""
    columns = {column.name: column for column in table.columns}
    condition = Condition()
    left: list[Filter] = []
    for number, one in enumerate(filters):
        path: tuple[str, ...] = getattr(one, "attribute", ())
        column = columns.get(path[0]) if len(path) == 1 else None
        clause = None if column is None else _clause(one, column, f"pushed{number}")
        if clause is None:
            left.append(one)
        else:
            condition = condition.also(clause[0], **clause[1])
    return condition, left


def _clause(one: Filter, column: Column, name: str) -> tuple[str, dict[str, object]] | None:
    if column.type == StringType():
        if isinstance(one, EqualTo) and isinstance(one.value, str):
            return (f"{column.sql} = %({name})s::text", {name: one.value}) if _is_storable(one.value) else ("false", {})
        if isinstance(one, In) and all(isinstance(value, str) for value in one.value):
            return f"{column.sql} = any(%({name})s::text[])", {name: list(filter(_is_storable, one.value))}
    comparison = _COMPARISONS.get(type(one))
    if comparison and column.type == TimestampType():
        value = getattr(one, "value", None)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return f"{column.sql} {comparison} %({name})s::bigint", {name: instant_microseconds(value)}
    return None


def _is_storable(text: str) -> bool:
    """Whether a column can hold the text; one that it cannot hold equals none that is there."""
    return re.search("[\0\ud800-\udfff]", text) is None


_ROWS_A_TASK = 250_000
_MAX_TASKS = 16


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of keys, its end excluded; None is no bound.

    Attributes:
        key: The expression of the key; ``h.recorded_xid`` is compared as xid8, others as numbers.
        low: The least key.
        high: The first key after the range.
    """

    key: str
    low: int | None
    high: int | None

    def narrow(self, condition: Condition) -> Condition:
        """The condition, restricted to these keys."""
        cast = "::text::xid8" if self.key.endswith("_xid") else ""
        if self.low is not None:
            condition = condition.also(f"{self.key} >= %(low)s{cast}", low=str(self.low) if cast else self.low)
        if self.high is not None:
            condition = condition.also(f"{self.key} < %(high)s{cast}", high=str(self.high) if cast else self.high)
        return condition


def key_ranges(key: str, low: int, high: int, count: int) -> list[KeyRange]:
    """At most *count* ranges of equal width, for keys from about *low* to *high*."""
    width = max(high - low + 1, 1)
    count = max(1, min(count, width))
    cuts = [low + width * part // count for part in range(1, count)]
    return [KeyRange(key, *first_and_last) for first_and_last in zip([None, *cuts], [*cuts, None], strict=True)]


def task_count(low: int, high: int, requested: int | None) -> int:
    """The number of tasks for about so many rows."""
    return requested or max(1, min(_MAX_TASKS, -(-(high - low) // _ROWS_A_TASK)))
