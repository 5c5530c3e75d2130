"""Batch reads of a table.

The history is append-only, so that many tasks can read the rows of one instant, each on a connection and a snapshot of
its own: the plan holds the snapshot of the driver, and tasks read the rows whose recording transaction is visible in
it. Live tables change: with one task all rows are of one instant, with several each task has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sqlalchemy_fairqueue.spark.connections import translated_errors
from sqlalchemy_fairqueue.spark.executors import Shipped
from sqlalchemy_fairqueue.spark.reading.data_loss import check_losses, last_pruned
from sqlalchemy_fairqueue.spark.reading.history_position import first_and_last, last_position
from sqlalchemy_fairqueue.spark.reading.key_ranges import KeyRange, key_ranges, task_count
from sqlalchemy_fairqueue.spark.reading.offsets import EARLIEST, LATEST, Offset, Position, read_offset
from sqlalchemy_fairqueue.spark.reading.origin import check_origin, horizon
from sqlalchemy_fairqueue.spark.reading.pushdown import pushed_down
from sqlalchemy_fairqueue.spark.reading.queries import (
    Condition,
    base_condition,
    position_range,
    reading_connection,
    rows,
)
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, table_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import psycopg
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.origin import Horizon
    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

_DAY = 86_400_000_000


@dataclass
class TablePartition(InputPartition):
    """The rows that one task reads.

    Attributes:
        key_range: Their keys.
        condition: Further conditions.
        after: History: the offset of the start; rows after it that were pruned are lost.
    """

    key_range: KeyRange
    condition: Condition
    after: Offset | None = None


class BatchReader(Shipped, DataSourceReader):
    """Reads a table once: ``partitions`` runs on the driver, ``read`` in the tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = columns
        self._pushed = Condition()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that the server can evaluate, and return the others."""
        self._pushed, left = pushed_down(filters, self._table)
        return left

    @property
    def _condition(self) -> Condition:
        return base_condition(self._table, self._options).both(self._pushed)

    @property
    def _table(self) -> Table:
        return table_named(self._options.table)

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions of the tasks, planned on one snapshot."""
        with (
            reading_connection(self._options, "plan") as (connection, schema),
            translated_errors(f"plan to read {self._table.name}"),
        ):
            if self._table is not HISTORY:
                return self._live_parts(connection, schema)
            pruned = last_pruned(connection, schema)
            now = horizon(connection, schema)
            if self._options.is_incremental:
                return self._incremental_parts(connection, schema, now, pruned)
            condition = self._condition.also(
                "(h.recorded_xid < %(xmin)s::text::xid8"
                " or pg_visible_in_snapshot(h.recorded_xid, %(snapshot)s::text::pg_snapshot))",
                xmin=str(now.xmin),
                snapshot=now.snapshot,
            )
            low, high = _bounds(connection, schema, HISTORY, self._days())
            count = task_count(low, high, self._options.num_partitions)
            start = Offset(now.origin, Position(), pruned)
            return [
                TablePartition(key_range, condition, start) for key_range in key_ranges(HISTORY.key, low, high, count)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, TablePartition)  # noqa: S101 - Spark gives what partitions() gave
        after = partition.after
        with reading_connection(self._options, "read") as (connection, schema):
            if after is not None:
                check_origin(after, horizon(connection, schema), self._options.accepted_origin)
            with connection.transaction():
                yield from rows(
                    connection, schema, self._table, self._columns, partition.key_range.narrow(partition.condition)
                )
                if after is not None:
                    check_losses(
                        connection,
                        schema,
                        position=after.position,
                        pruned=after.pruned,
                        fail=self._options.fail_on_data_loss,
                        finished=self._options.finished,
                    )

    def _live_parts(self, connection: psycopg.Connection, schema: str) -> list[InputPartition]:
        low, high = _bounds(connection, schema, self._table, Condition())
        condition = self._condition
        ranges = key_ranges(self._table.key, low, high, self._options.num_partitions or 1)
        return [TablePartition(key_range, condition) for key_range in ranges]

    def _incremental_parts(
        self, connection: psycopg.Connection, schema: str, now: Horizon, pruned: int
    ) -> list[InputPartition]:
        """Partitions of the rows between two offsets, by recording transaction."""
        start, end = Offset(now.origin, Position(), pruned), None
        if self._options.starting_offsets not in (None, EARLIEST):
            start = read_offset(self._options.starting_offsets or "", "option startingOffsets")
            check_origin(start, now, self._options.accepted_origin)
        if self._options.ending_offsets not in (None, LATEST):
            end = read_offset(self._options.ending_offsets or "", "option endingOffsets")
            check_origin(end, now, self._options.accepted_origin)
        upto = end.position if end else last_position(connection, schema, now.xmin)
        first, last = first_and_last(connection, schema, position_range(self._days(), start.position, upto))
        # The number of ids is about that of rows, the number of transactions is not.
        count = task_count(first.id, last.id, self._options.num_partitions)
        condition = position_range(self._condition, start.position, upto)
        found = Offset(now.origin, start.position, start.pruned)
        return [
            TablePartition(key_range, condition, found)
            for key_range in key_ranges("h.recorded_xid", first.xid, last.xid, count)
        ]

    def _days(self) -> Condition:
        """The condition for whole days that hold the rows: their indexes give the first and last row at once."""
        condition = Condition()
        since, until = self._options.finished
        if self._options.since is not None:
            condition = condition.also("h.finished_at >= %(since)s", since=since // _DAY * _DAY)
        if self._options.until is not None:
            condition = condition.also("h.finished_at < %(until)s", until=-(-until // _DAY) * _DAY)
        return condition


def _bounds(connection: psycopg.Connection, schema: str, table: Table, condition: Condition) -> tuple[int, int]:
    """About the least and the greatest key: they decide only how evenly rows are split among tasks."""
    statement = table.bounds.format(schema=schema, where=condition.text).encode()
    row = connection.execute(statement, condition.values).fetchone()
    return (int(row[0]), int(row[1])) if row and row[0] is not None else (0, 0)
