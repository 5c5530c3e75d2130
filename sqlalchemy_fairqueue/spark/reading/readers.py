"""Reads tables once, and the history also as a stream.

Read once: however many tasks read the history, its rows are of one instant, since each task reads only rows whose
recording transaction is in the driver's snapshot. From other tables, each task reads what is there when it begins.

As a stream: each attempt is in exactly one micro-batch, even if transactions commit out of order. A micro-batch ends
below the oldest open transaction in the cluster, so a long transaction delays the stream, but no row is lost. Two
positions determine a micro-batch, so it can be read again after a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from sqlalchemy_fairqueue.spark.connections import connect, query, translated_errors
from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.executors import Shipped
from sqlalchemy_fairqueue.spark.reading.lag import measure_lag
from sqlalchemy_fairqueue.spark.reading.offsets import (
    EARLIEST,
    LATEST,
    Offset,
    Position,
    check_origin,
    offset_of,
    read_offset,
)
from sqlalchemy_fairqueue.spark.reading.queries import (
    Condition,
    base_condition,
    check_losses,
    finished_condition,
    first_and_last,
    horizon,
    last_position,
    last_pruned,
    position_after,
    position_range,
    prepared_installation,
    reading_connection,
    rows,
    split,
    task_count,
)
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, table_named

__all__ = ["LIMITS_ARE_KNOWN", "BatchReader", "Follower", "ReadAllAvailable", "ReadMaxRows", "StreamReader"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    import pyarrow as pa

    from sqlalchemy_fairqueue.spark.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.offsets import Horizon
    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

    T = TypeVar("T")

_DAY = 86_400_000_000


@dataclass
class TablePartition(InputPartition):
    """The rows that a task reads.

    In a stream *is_batch* is true: the rows are part of a micro-batch. If a table is read once, *is_batch* is false.
    The task checks that no row beyond the offset *after* was pruned. If *after* is None, there is no check.
    """

    condition: Condition
    after: Offset | None = None
    is_batch: bool = False


def _rows_of(
    partition: InputPartition, options: ReadOptions, columns: Sequence[Column], purpose: str
) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, TablePartition)  # noqa: S101 - Spark gives what partitions() gave
    after = partition.after
    with reading_connection(options, purpose) as (connection, schema):
        if after is not None:
            check_origin(after, horizon(connection, schema), options.accepted_origin)
        with connection.transaction():
            if partition.is_batch:
                # The statistics may be older than the micro-batch, so that the planner might scan the whole table. An
                # index scan reads only the rows of the micro-batch.
                connection.execute("set local enable_seqscan = off")
            yield from rows(connection, schema, table_named(options.table), columns, partition.condition)
            if after is not None:
                check_losses(connection, schema, after, options)


class BatchReader(Shipped, DataSourceReader):
    """Reads a table once: ``partitions`` runs on the driver, ``read`` in the tasks.

    There is no ``pushFilters``, since Spark keeps pushed filters with the loaded frame and not with a query. If a frame
    had two queries, the filters of the second query would apply to the first query too.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = columns

    @property
    def _table(self) -> Table:
        return table_named(self._options.table)

    def partitions(self) -> Sequence[InputPartition]:
        with (
            reading_connection(self._options, "plan") as (connection, schema),
            translated_errors(f"plan to read {self._table.name}"),
        ):
            asked = self._options.num_partitions
            condition = base_condition(self._table, self._options)
            if self._table is not HISTORY:
                key = self._table.key
                source = self._table.source.format(schema=schema)
                [(low, high)] = query(connection, "key_bounds", {}, key=key, source=source)
                return [TablePartition(part) for part in split(condition, key, low or 0, high or 0, asked or 1)]
            pruned = last_pruned(connection, schema)
            now = horizon(connection, schema)
            start, end = self._offsets(now, pruned)
            # ``days`` is widened to whole days, the partitions of the history. In such a partition every row meets the
            # condition, so that an index gives the first and the last row without a search.
            days = finished_condition(self._options, _DAY)
            if self._options.is_incremental:
                upto = end.position if end else last_position(connection, schema, now.xmin)
                condition, days = (position_range(one, start.position, upto) for one in (condition, days))
            else:
                condition = condition.also(
                    "(h.recorded_xid < %(xmin)s::text::xid8"
                    " or pg_visible_in_snapshot(h.recorded_xid, %(snapshot)s::text::pg_snapshot))",
                    xmin=str(now.xmin),
                    snapshot=now.snapshot,
                )
            first, last = first_and_last(connection, schema, days)
            # The number of tasks depends on the range of ids, since a range of transactions does not tell how many
            # rows there are.
            count = task_count(first.id, last.id, asked)
            if self._options.is_incremental:
                parts = split(condition, "h.recorded_xid", first.xid, last.xid, count)
            else:
                parts = split(condition, HISTORY.key, first.id, last.id, count)
            return [TablePartition(part, start) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows_of(partition, self._options, self._columns, "read")

    def _offsets(self, now: Horizon, pruned: int) -> tuple[Offset, Offset | None]:
        """Return the offset to read after, and the offset to read up to. If the second is None, read to the end."""
        found: dict[str, Offset] = {}
        given = {"startingOffsets": self._options.starting_offsets, "endingOffsets": self._options.ending_offsets}
        for name, text in given.items():
            if text not in (None, EARLIEST, LATEST):
                found[name] = read_offset(text, f"option {name}")
                check_origin(found[name], now, self._options.accepted_origin)
        start = found.get("startingOffsets", Offset(now.origin, Position(), pruned))
        return Offset(now.origin, start.position, start.pruned), found.get("endingOffsets")


LIMITS_ARE_KNOWN = find_spec("pyspark.sql.streaming.datasource") is not None
if TYPE_CHECKING or LIMITS_ARE_KNOWN:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
else:

    class AvailableNow:
        """Stand-in for the three classes above, since PySpark 4.1 has no ``pyspark.sql.streaming.datasource``."""

    ReadAllAvailable = ReadMaxRows = AvailableNow


class Follower(Shipped, DataSourceStreamReader, AvailableNow):
    """A reader of a stream. It lives as long as its query, in a separate process beside the driver."""

    follows: str
    _options: ReadOptions
    _connection: psycopg.Connection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _prepare(self, connection: psycopg.Connection) -> None:
        raise NotImplementedError

    def _query(self, ask: Callable[[psycopg.Connection], T]) -> T:
        """Query on a connection that is kept between calls, since Spark may ask often. Replace a broken connection."""
        with translated_errors(f"follow the {self.follows}"):
            if self._connection is not None and not self._connection.closed:
                try:
                    return ask(self._connection)
                except psycopg.OperationalError:
                    self.stop()
            self._connection = connect(self._options, "stream", autocommit=True)
            self._prepare(self._connection)
            return ask(self._connection)


class StreamReader(Follower):
    """Reads the history as a stream: each attempt is in exactly one micro-batch."""

    follows = "history"

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        if options.max_offsets_per_trigger is not None and not LIMITS_ARE_KNOWN:
            raise BadOption("option maxOffsetsPerTrigger needs PySpark 4.2 or later; leave it out, or upgrade PySpark")
        self._options = options
        self._columns = columns
        self._schema = ""
        self._target: Position | None = None
        self._reached: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        asked = self._options.starting_offsets or EARLIEST
        if asked not in (EARLIEST, LATEST):
            return read_offset(asked, "option startingOffsets").as_dict()
        return self._query(lambda connection: self._edge(connection, latest=asked == LATEST).as_dict())

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: N802
        # PySpark 4.1 passes neither start nor limit.
        return self._query(lambda connection: self._end(connection, start, limit))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        most = self._options.max_offsets_per_trigger
        return ReadMaxRows(most) if most is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._query(lambda connection: self._edge(connection, latest=True).position)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        reached = self._reached
        if reached is None:
            return None
        return self._query(lambda connection: measure_lag(connection, self._schema, reached).as_dict())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = offset_of(start), offset_of(end)
        self._reached = last
        self._query(lambda connection: self._check(connection, first))
        if first.position >= last.position:
            return []
        condition = position_range(base_condition(HISTORY, self._options), first.position, last.position)
        count = self._options.num_partitions or 1
        parts = split(condition, "h.recorded_xid", first.position.xid, last.position.xid, count)
        after = Offset(last.origin, first.position, first.pruned)
        return [TablePartition(part, after, is_batch=True) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows_of(partition, self._options, self._columns, "stream read")

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark says that it has read up to *end*, but only housekeeping removes rows of the history."""

    def _edge(self, connection: psycopg.Connection, *, latest: bool) -> Offset:
        # ``pruned`` is read first, so that the next check finds all that is pruned after the horizon is read.
        pruned = last_pruned(connection, self._schema)
        now = horizon(connection, self._schema)
        return Offset(now.origin, last_position(connection, self._schema, now.xmin) if latest else Position(), pruned)

    def _end(self, connection: psycopg.Connection, start: dict[str, Any] | None, limit: object) -> dict[str, Any]:
        pruned = last_pruned(connection, self._schema)
        now = horizon(connection, self._schema)
        if start is None:
            return Offset(now.origin, last_position(connection, self._schema, now.xmin), pruned).as_dict()
        self._reached = after = offset_of(start)
        check_origin(after, now, self._options.accepted_origin)
        check_losses(connection, self._schema, after, self._options)
        if isinstance(limit, ReadMaxRows):
            end = position_after(connection, self._schema, after.position, limit.max_rows, now.xmin)
        else:
            end = last_position(connection, self._schema, now.xmin)
        if self._target is not None:
            end = min(end, self._target)
        # An unchanged offset is returned unchanged: Spark takes any other text for new data.
        return Offset(now.origin, end, pruned).as_dict() if end > after.position else start

    def _check(self, connection: psycopg.Connection, start: Offset) -> None:
        check_origin(start, horizon(connection, self._schema), self._options.accepted_origin)
        check_losses(connection, self._schema, start, self._options)

    def _prepare(self, connection: psycopg.Connection) -> None:
        self._schema = prepared_installation(connection, self._options).quoted
