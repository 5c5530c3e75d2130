"""Reading once.

The history is append-only, so that one instant can be read by many tasks, each on a connection and a snapshot of its
own: the plan notes the snapshot of the driver, and tasks take what was committed in it, by the transaction that
recorded each row. Live tables change: with one task all rows are of one instant, with several each task has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sqlalchemy_fairqueue.spark.connecting import refusals
from sqlalchemy_fairqueue.spark.reading.losses import check_losses, last_pruned
from sqlalchemy_fairqueue.spark.reading.offsets import EARLIEST, LATEST, Offset, Position, read_offset
from sqlalchemy_fairqueue.spark.reading.origin import check_origin, horizon
from sqlalchemy_fairqueue.spark.reading.places import ends, last_position
from sqlalchemy_fairqueue.spark.reading.querying import Condition, between, opened, rows, wanted
from sqlalchemy_fairqueue.spark.reading.spans import Span, parts_of, spans
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, table_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    import pyarrow as pa

    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.origin import Horizon
    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

_DAY = 86_400_000_000


@dataclass
class Part(InputPartition):
    """What one task reads.

    Attributes:
        span: Keys from one to another.
        condition: What else holds of its rows.
        after: History: where reading began; what was taken away behind it is a loss.
    """

    span: Span
    condition: Condition
    after: Offset | None = None


class BatchReader(DataSourceReader):
    """Reads a table once. Made on the driver, used there (``partitions``) and in the tasks (``read``)."""

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = columns

    @property
    def _table(self) -> Table:
        return table_named(self._options.table)

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads, planned on one snapshot."""
        with opened(self._options, "plan") as (connection, schema), refusals(f"plan to read {self._table.name}"):
            if self._table is not HISTORY:
                return self._live_parts(connection, schema)
            pruned = last_pruned(connection, schema)
            now = horizon(connection, schema)
            if self._options.is_incremental:
                return self._incremental_parts(connection, schema, now, pruned)
            condition = wanted(HISTORY, self._options).also(
                "(h.recorded_xid < %(xmin)s::text::xid8"
                " or pg_visible_in_snapshot(h.recorded_xid, %(snapshot)s::text::pg_snapshot))",
                xmin=str(now.xmin),
                snapshot=now.snapshot,
            )
            low, high = _bounds(connection, schema, HISTORY, self._days())
            count = parts_of(low, high, self._options.num_partitions)
            start = Offset(now.origin, Position(), pruned)
            return [Part(span, condition, start) for span in spans(HISTORY.key, low, high, count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Part)  # noqa: S101 - Spark gives what partitions() gave
        after = partition.after
        with opened(self._options, "read") as (connection, schema):
            if after is not None:
                check_origin(after, horizon(connection, schema), self._options.accepted_origin)
            with connection.transaction():
                yield from rows(
                    connection, schema, self._table, self._columns, partition.span.narrow(partition.condition)
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
        count = self._options.num_partitions or 1
        return [Part(span, wanted(self._table, self._options)) for span in spans(self._table.key, low, high, count)]

    def _incremental_parts(
        self, connection: psycopg.Connection, schema: str, now: Horizon, pruned: int
    ) -> list[InputPartition]:
        """Between two offsets, shared by transaction."""
        start, end = Offset(now.origin, Position(), pruned), None
        if self._options.starting_offsets not in (None, EARLIEST):
            start = read_offset(self._options.starting_offsets or "", "option startingOffsets")
            check_origin(start, now, self._options.accepted_origin)
        if self._options.ending_offsets not in (None, LATEST):
            end = read_offset(self._options.ending_offsets or "", "option endingOffsets")
            check_origin(end, now, self._options.accepted_origin)
        upto = end.position if end else last_position(connection, schema, now.xmin)
        first, last = ends(connection, schema, between(self._days(), start.position, upto))
        # Ids are as good as rows to count by, transactions are not.
        count = parts_of(first.id, last.id, self._options.num_partitions)
        condition = between(wanted(HISTORY, self._options), start.position, upto)
        found = Offset(now.origin, start.position, start.pruned)
        return [Part(span, condition, found) for span in spans("h.recorded_xid", first.xid, last.xid, count)]

    def _days(self) -> Condition:
        """The days that hold what was asked for: whole days, whose indexes give their first and last row at once."""
        condition = Condition()
        since, until = self._options.finished
        if self._options.since is not None:
            condition = condition.also("h.finished_at >= %(since)s", since=since // _DAY * _DAY)
        if self._options.until is not None:
            condition = condition.also("h.finished_at < %(until)s", until=-(-until // _DAY) * _DAY)
        return condition


def _bounds(connection: psycopg.Connection, schema: str, table: Table, condition: Condition) -> tuple[int, int]:
    """The least and the greatest key, about; nothing depends on it but how evenly tasks share."""
    statement = table.bounds.format(schema=schema, where=condition.text).encode()
    row = connection.execute(statement, condition.values).fetchone()
    return (int(row[0]), int(row[1])) if row and row[0] is not None else (0, 0)
