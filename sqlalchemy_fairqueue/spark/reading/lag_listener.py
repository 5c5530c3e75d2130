"""Listener of streaming queries that hands the lag of each stream of the history to a monitoring system.

It opens no connection: the lag is in the progress that the stream reports (PySpark 4.2 or later).
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from sqlalchemy_fairqueue.texts import logged, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_log = logging.getLogger(__name__)
_FIELDS = ("rows", "seconds", "held_rows", "held_seconds", "held_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """The lag of a stream of the history when a micro-batch began.

    Spark reports what it found when it planned the batch, after it has run the batch.

    Attributes:
        query: Name of the query, else its id.
        batch: Number of the micro-batch.
        read: Rows that the batch then read.
        rows: Rows that were unread and could be read, those that the batch read included, counted up to 100,000.
        seconds: How long the first of them had been there.
        held_rows: Committed rows that wait for an open transaction, counted alike.
        held_seconds: The age of the oldest open transaction that has written anything.
        held_by: That transaction's process id; 0: there is none.
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
    """Log a lag as one line of JSON, at level INFO."""
    _log.info("lag of a stream of the history: %s", json.dumps(asdict(lag)))


class LagListener(StreamingQueryListener):
    """Calls a function after each micro-batch, with the lag of each stream of the history when the batch began.

    Args:
        export: Called in a thread of the driver. An error that it raises is logged, and the query goes on. None: each
            lag is logged.
    """

    def __init__(self, export: Callable[[StreamLag], None] | None = None) -> None:
        self._export = export or log_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to export yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Export the lags of the query's streams."""
        for lag in lags_of(event.progress):
            try:
                self._export(lag)
            except Exception as error:  # noqa: BLE001 - whatever a monitoring system raises, the query goes on
                what = type(error).__name__, logged(error)
                _log.error(
                    "the lag of query %s could not be exported: %s: %s", lag.query, *what, exc_info=traced(error)
                )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to export any more."""


def lags_of(progress: StreamingQueryProgress) -> Iterator[StreamLag]:
    """The lags in the progress of a query: one for each of its sources that is a history."""
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
