"""One run of the archive: who may, what is missing, day by day."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from pyspark.errors import AnalysisException

from sqlalchemy_fairqueue.spark import register
from sqlalchemy_fairqueue.spark.archiving.errors import ArchiveBusy, ArchiveError
from sqlalchemy_fairqueue.spark.archiving.marker import Marker, new_marker
from sqlalchemy_fairqueue.spark.archiving.names import DAY, Piece, archived, day_of
from sqlalchemy_fairqueue.spark.archiving.pending import lost_days, pending
from sqlalchemy_fairqueue.spark.archiving.storage import Storage
from sqlalchemy_fairqueue.spark.connecting import refusals
from sqlalchemy_fairqueue.spark.reading.losses import DataLoss, last_pruned
from sqlalchemy_fairqueue.spark.reading.offsets import Offset, Position
from sqlalchemy_fairqueue.spark.reading.origin import check_origin, horizon
from sqlalchemy_fairqueue.spark.reading.querying import opened
from sqlalchemy_fairqueue.spark.reading.spans import parts_of
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
    from sqlalchemy_fairqueue.spark.reading.origin import Horizon

_log = logging.getLogger(__name__)
# How long to wait for the lock of an archive.
_PATIENCE = "2s"

_LAST_ID = 2**63 - 1
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """What a run added to a day.

    Attributes:
        day: The UTC day.
        rows: How many attempts.
        is_late: Whether the day was there before.
    """

    day: date
    rows: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What a run did.

    Attributes:
        days: What was added, in the order of days.
        through_xid: Everything that transactions below this one recorded of the days until now is archived.
        until: The first day that is not archived yet.
        lost: Days of which attempts were taken away from the history before they were archived.
    """

    days: tuple[ArchivedDay, ...]
    through_xid: int
    until: date
    lost: tuple[date, ...] = field(default=())

    @property
    def rows(self) -> int:
        """How many attempts were added."""
        return sum(day.rows for day in self.days)


def run(
    spark: SparkSession,
    path: str,
    options: ReadOptions,
    words: dict[str, str],
    *,
    today: bool,
    progress: Callable[[ArchivedDay], None] | None,
) -> ArchiveResult:
    """Bring the archive up to date; the arguments are those of :func:`archive`."""
    storage = Storage(spark, path)
    with _prepared(spark), opened(options, "archive") as (connection, schema), refusals("archive the history"):
        pruned = last_pruned(connection, schema)
        now = horizon(connection, schema)
        marker = _marked(storage, now, pruned)
        with _alone(connection, marker, path) as still_alone:
            # Whoever made the archive in the same moment may have been faster.
            if storage.marker() != marker:
                raise ArchiveBusy(f"another process has just begun the archive at {path}; run it again")
            storage.clean()
            held = archived(storage.pieces())
            reached = Offset(marker.origin, Position(max(held.values(), default=1) - 1, _LAST_ID), marker.pruned)
            check_origin(reached, now, options.accepted_origin)
            lost = _lost(connection, schema, held, marker, options)
            if marker != marker.of(now.origin, pruned):
                # What was noted until now was archived, or is told as lost once: a folder that leaves the archive
                # later must not make it look lost.
                marker = marker.of(now.origin, pruned)
                storage.mark(marker, new=False)
            until = _today(connection, schema) + today
            added = []
            for day, rows in pending(connection, schema, held, now.xmin, until).items():
                piece = Piece(day, held.get(day, 0), now.xmin)
                given = words | {"numPartitions": str(parts_of(0, rows, options.num_partitions))}
                frame = _frame(spark, given, piece, Offset(now.origin, Position(), marker.pruned))
                written = storage.write(frame, piece)
                if written != rows and options.fail_on_data_loss:
                    raise ArchiveError(
                        f"{piece.folder} was read as {written} rows and counted as {rows}: rows of the history were "
                        "deleted or changed meanwhile; run the archive again, with fail_on_data_loss=False to go on"
                    )
                still_alone()
                storage.publish(piece)
                added.append(ArchivedDay(day_of(day), written, is_late=day in held))
                if progress is not None:
                    progress(added[-1])
            storage.clean()
    return ArchiveResult(tuple(added), now.xmin, day_of(until), tuple(map(day_of, lost)))


@contextmanager
def _prepared(spark: SparkSession) -> Iterator[None]:
    """Have the session know the data source, and write instants as such, in UTC; what it wrote before, afterwards."""
    try:
        register(spark)
    except AnalysisException as error:
        # Some sessions refuse to be told twice.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    before = spark.conf.get(_TIMESTAMPS)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMPS, str(before))


def _marked(storage: Storage, now: Horizon, pruned: int) -> Marker:
    found = storage.marker()
    if found is None:
        found = new_marker(now.origin, pruned)
        storage.mark(found, new=True)
    return found


@contextmanager
def _alone(connection: psycopg.Connection, marker: Marker, path: str) -> Iterator[Callable[[], None]]:
    """Hold the archive's lock, which ends with the connection; what is given asks whether it still is held."""
    key = f"fairqueue archive {marker.archive}"
    try:
        # The server may not have noticed yet that a process has died. The lock outlives the transaction, its timeout
        # does not.
        with connection.transaction():
            connection.execute("select set_config('lock_timeout', %s, true)", [_PATIENCE])
            connection.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [key])
    except psycopg.errors.LockNotAvailable:
        raise ArchiveBusy(f"another process is bringing the archive at {path} up to date; wait for its end") from None

    def still_alone() -> None:
        try:
            connection.execute("select")
        except psycopg.OperationalError as error:
            raise ArchiveError(
                "the connection that keeps other processes from the archive was lost; run the archive again: it goes "
                "on behind the last day that is there"
            ) from error

    yield still_alone


def _lost(
    connection: psycopg.Connection, schema: str, held: Mapping[int, int], marker: Marker, options: ReadOptions
) -> list[int]:
    lost = lost_days(connection, schema, held, marker.pruned)
    if lost:
        days = ", ".join(str(day_of(day)) for day in lost)
        if options.fail_on_data_loss:
            raise DataLoss(
                f"attempts of {days} were taken away from the history before they were archived; go on without them "
                "with fail_on_data_loss=False, and archive more often or keep the history longer"
            )
        _log.warning("attempts of %s were taken away from the history before they were archived", days)
    return lost


def _today(connection: psycopg.Connection, schema: str) -> int:
    row = connection.execute(f"select {schema}.fq_now()".encode(), {}).fetchone()
    return int(row[0]) // DAY if row else 0


def _frame(spark: SparkSession, words: Mapping[str, str], piece: Piece, start: Offset) -> DataFrame:
    """The rows of a piece, in one partition, by the time at which they finished."""
    after = Position(piece.low - 1, _LAST_ID) if piece.low else Position()
    found = spark.read.format("fairqueue").options(
        **words,
        since=instant(piece.day * DAY).isoformat(),
        until=instant((piece.day + 1) * DAY).isoformat(),
        startingOffsets=str(Offset(start.origin, after, start.pruned)),
        endingOffsets=str(Offset(start.origin, Position(piece.high - 1, _LAST_ID), start.pruned)),
    )
    frame = found.load()
    together = frame.coalesce(1) if words["numPartitions"] == "1" else frame.repartition(1)
    return together.sortWithinPartitions("finished_at", "id")
