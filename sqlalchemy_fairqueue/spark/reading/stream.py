"""Stream of the history: each attempt is in exactly one micro-batch, also if transactions commit out of order.

A micro-batch ends below the oldest transaction that is still open anywhere in the cluster: a transaction that stays
open delays the stream, and no row is lost. Two positions determine its rows, so that it can be read again after a
failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sqlalchemy_fairqueue.spark.connections import connect, translated_errors
from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.executors import Shipped
from sqlalchemy_fairqueue.spark.reading.data_loss import check_losses, last_pruned
from sqlalchemy_fairqueue.spark.reading.history_lag import measure_lag
from sqlalchemy_fairqueue.spark.reading.history_position import last_position, position_after
from sqlalchemy_fairqueue.spark.reading.key_ranges import KeyRange, key_ranges
from sqlalchemy_fairqueue.spark.reading.limits import LIMITS_ARE_KNOWN, AvailableNow, ReadAllAvailable, ReadMaxRows
from sqlalchemy_fairqueue.spark.reading.offsets import EARLIEST, LATEST, Offset, Position, offset_of, read_offset
from sqlalchemy_fairqueue.spark.reading.origin import check_origin, horizon
from sqlalchemy_fairqueue.spark.reading.queries import (
    Condition,
    base_condition,
    position_range,
    prepare_connection,
    reading_connection,
    rows,
)
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    import pyarrow as pa

    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.tables import Column

    T = TypeVar("T")


@dataclass
class StreamPartition(InputPartition):
    """The rows that one task of a micro-batch reads.

    Attributes:
        key_range: Their recording transactions.
        condition: Further conditions.
        after: The start of the micro-batch.
    """

    key_range: KeyRange
    condition: Condition
    after: Offset


class StreamReader(Shipped, DataSourceStreamReader, AvailableNow):
    """Reads the history as a stream. It lives as long as its query, in a process of its own beside the driver."""

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        if options.max_offsets_per_trigger is not None and not LIMITS_ARE_KNOWN:
            raise BadOption("option maxOffsetsPerTrigger needs PySpark 4.2 or later; leave it out, or upgrade PySpark")
        self._options = options
        self._columns = columns
        self._connection: psycopg.Connection | None = None
        self._schema = ""
        self._target: Position | None = None
        self._reached: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without the connection: tasks open their own."""
        return self.__dict__ | {"_connection": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start of a query without a checkpoint."""
        asked = self._options.starting_offsets or EARLIEST
        if asked not in (EARLIEST, LATEST):
            return read_offset(asked, "option startingOffsets").as_dict()
        return self._query(lambda connection: self._edge(connection, latest=asked == LATEST).as_dict())

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch. PySpark 4.1 gives no start and no limit."""
        return self._query(lambda connection: self._end(connection, start, limit))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The option maxOffsetsPerTrigger."""
        most = self._options.max_offsets_per_trigger
        return ReadMaxRows(most) if most is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the present end of the history, where the query ends."""
        self._target = self._query(lambda connection: self._edge(connection, latest=True).position)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the history and the lag of the stream, for the query's progress."""
        reached = self._reached
        if reached is None:
            return None
        return self._query(lambda connection: measure_lag(connection, self._schema, reached).as_dict())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a micro-batch."""
        first, last = offset_of(start), offset_of(end)
        self._reached = last
        self._query(lambda connection: self._check(connection, first))
        if first.position >= last.position:
            return []
        condition = position_range(base_condition(HISTORY, self._options), first.position, last.position)
        count = self._options.num_partitions or 1
        shares = key_ranges("h.recorded_xid", first.position.xid, last.position.xid, count)
        after = Offset(last.origin, first.position, first.pruned)
        return [StreamPartition(share, condition, after) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, StreamPartition)  # noqa: S101 - Spark gives what partitions() gave
        with reading_connection(self._options, "stream read") as (connection, schema):
            check_origin(partition.after, horizon(connection, schema), self._options.accepted_origin)
            with connection.transaction():
                # Statistics may be older than the batch; with the index the cost is proportional to its rows.
                connection.execute("set local enable_seqscan = off")
                yield from rows(
                    connection, schema, HISTORY, self._columns, partition.key_range.narrow(partition.condition)
                )
                self._check_losses(connection, schema, partition.after)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: housekeeping prunes the history."""

    def stop(self) -> None:
        """Close the driver's connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _edge(self, connection: psycopg.Connection, *, latest: bool) -> Offset:
        # In this order: the next check finds what is pruned after this.
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
        self._check_losses(connection, self._schema, after)
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
        self._check_losses(connection, self._schema, start)

    def _check_losses(self, connection: psycopg.Connection, schema: str, start: Offset) -> None:
        check_losses(
            connection,
            schema,
            position=start.position,
            pruned=start.pruned,
            fail=self._options.fail_on_data_loss,
        )

    def _query(self, query: Callable[[psycopg.Connection], T]) -> T:
        """Query on the driver's connection, which is kept for many calls a second. A broken one is replaced."""
        with translated_errors("follow the history"):
            if self._connection is not None and not self._connection.closed:
                try:
                    return query(self._connection)
                except psycopg.OperationalError:
                    self.stop()
            self._connection = connect(self._options, "stream", autocommit=True)
            self._schema = prepare_connection(self._connection, self._options)
            return query(self._connection)
