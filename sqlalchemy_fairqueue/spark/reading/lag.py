"""Measures the lag of a reader of the history, names the transaction that delays it, and exports the lag of streams."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sqlalchemy_fairqueue.spark.connections import query, translated_errors
from sqlalchemy_fairqueue.spark.options import ReadOptions, read_options
from sqlalchemy_fairqueue.spark.reading.offsets import Offset, check_origin, read_offset
from sqlalchemy_fairqueue.spark.reading.queries import horizon, last_position, reading_connection, rows_after
from sqlalchemy_fairqueue.texts import logged, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import psycopg
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_MAX_COUNTED = 100_000


@dataclass(frozen=True, slots=True)
class HistoryLag:
    """How far a reader at an offset is behind the end of the history. Rows are counted up to 100,000.

    Attributes:
        rows: Readable rows after the offset.
        held_rows: Committed rows after the offset that must wait for an older transaction.
        seconds: The age of the first row after the offset, readable or held; 0 if there is no such row.
        held_seconds: The age of the cluster's oldest open transaction that has written anything, or 0.
        held_by: The process id of this transaction in ``pg_stat_activity``, or None.
        latest: The offset at the end of what is readable now.
    """

    rows: int
    held_rows: int
    seconds: float
    held_seconds: float
    held_by: int | None
    held_by_application: str
    latest: Offset

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["latest"]
        # Spark allows whole numbers and texts in offsets.
        fields |= {
            "seconds": round(self.seconds),
            "held_seconds": round(self.held_seconds),
            "held_by": self.held_by or 0,
        }
        return self.latest.as_dict() | fields


def history_lag(offset: str | Mapping[str, Any] | Offset, **options: str) -> HistoryLag:
    """Return how far a reader at *offset* is behind the end of the history, in rows and in seconds.

    Args:
        offset: An offset from a checkpoint, or a query's ``lastProgress["sources"][0]["endOffset"]``.
        **options: Options of the data source: ``dsn=...`` or ``dsnEnv=...``, ``schema=...``.

    Raises:
        BadOption: *offset* is not an offset, or an option is wrong.
        OriginChanged: The offset belongs to another history.
    """
    text = offset if isinstance(offset, str) else str(offset) if isinstance(offset, Offset) else json.dumps(offset)
    reached = read_offset(text, "offset")
    read = read_options(ReadOptions, options)
    with reading_connection(read, "lag") as (connection, schema), translated_errors("measure the lag"):
        check_origin(reached, horizon(connection, schema), read.accepted_origin)
        return measure_lag(connection, schema, reached)


def measure_lag(connection: psycopg.Connection, schema: str, reached: Offset) -> HistoryLag:
    now = horizon(connection, schema)
    readable = rows_after(connection, schema, reached.position, now.xmin, _MAX_COUNTED)
    position = max(reached.position, last_position(connection, schema, now.xmin))
    values = {"xid": str(reached.position.xid), "id": reached.position.id}
    unread = query(connection, "first_unread", values, schema=schema)
    pid, age, application = next(iter(query(connection, "oldest_transaction", {})), (None, None, None))
    return HistoryLag(
        rows=readable,
        held_rows=rows_after(connection, schema, position, 2**63, _MAX_COUNTED),
        seconds=max(0.0, unread[0][0] / 1_000_000) if unread else 0.0,
        held_seconds=max(0.0, float(age or 0)),
        held_by=pid,
        held_by_application=application or "",
        latest=Offset(now.origin, position, reached.pruned),
    )


_log = logging.getLogger(__name__)
_FIELDS = ("rows", "seconds", "held_rows", "held_seconds", "held_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """The lag that a stream of the history had when a micro-batch was planned. Spark reports it after the micro-batch.

    *read* is how many rows the batch read; *query* is the query's name, or its id. *rows* and the fields after it are
    as in :class:`HistoryLag`. But seconds are whole numbers, and *held_by* is 0 instead of None.
    """

    query: str
    batch: int
    read: int
    rows: int
    seconds: int
    held_rows: int
    held_seconds: int
    held_by: int


def log_lag(lag: StreamLag) -> None:
    _log.info("lag of a stream of the history: %s", json.dumps(asdict(lag)))


class LagListener(StreamingQueryListener):
    """Calls *export* after each micro-batch, with the lag that the stream of the history had when the batch began.

    It needs PySpark 4.2 or later, and opens no connection. If a query reads several histories, there is a call for
    each. *export* is called in a thread of the driver; by default it logs the lag. Errors of *export* are logged, too.
    """

    def __init__(self, export: Callable[[StreamLag], None] | None = None) -> None:
        self._export = export or log_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        for lag in lags_of(event.progress):
            try:
                self._export(lag)
            except Exception as error:  # noqa: BLE001 - whatever a monitoring system raises, the query goes on
                what = type(error).__name__, logged(error)
                _log.error(
                    "the lag of query %s could not be exported: %s: %s", lag.query, *what, exc_info=traced(error)
                )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""


def lags_of(progress: StreamingQueryProgress) -> Iterator[StreamLag]:
    """Yield the lags in a query's progress, one for each source that is a history."""
    for source in progress.sources:
        try:
            end = json.loads(source.latestOffset or "null")
        except ValueError:
            continue
        if isinstance(end, dict) and all(isinstance(end.get(name), int) for name in _FIELDS):
            yield StreamLag(
                query=progress.name or str(progress.id),
                batch=progress.batchId,
                read=source.numInputRows,
                **{name: end[name] for name in _FIELDS},
            )
