"""Archives the history as Parquet, with a folder for each UTC day, in runs that may die at any time."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import psycopg
from pyspark.errors import AnalysisException
from pyspark.sql.functions import coalesce, lit

from sqlalchemy_fairqueue.reporting.history import LISTINGS, ArchiveFile, day_of, has_gap, superseded
from sqlalchemy_fairqueue.spark import register
from sqlalchemy_fairqueue.spark.archive_storage import DAY, Marker, Storage, archived_through
from sqlalchemy_fairqueue.spark.connections import query, translated_errors
from sqlalchemy_fairqueue.spark.errors import ArchiveBusy, ArchiveError
from sqlalchemy_fairqueue.spark.options import ReadOptions, read_options
from sqlalchemy_fairqueue.spark.reading.offsets import Offset, Position, check_origin
from sqlalchemy_fairqueue.spark.reading.queries import horizon, last_pruned, note_loss, reading_connection, task_count
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, frame_schema
from sqlalchemy_fairqueue.times import instant
from sqlalchemy_fairqueue.values.checks import check_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.spark.reading.offsets import Horizon

_LOCK_TIMEOUT = "2s"

_LAST_ID = 2**63 - 1
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """A day in UTC, and how many rows a run added to it; *is_late* says that an earlier run had archived the day."""

    day: date
    rows: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of a run.

    Attributes:
        through_xid: The archive has all rows of days before *until* that were recorded by transactions below this id.
        until: The first day that is not archived yet.
        lost: Days with attempts that were pruned before they were archived.
    """

    days: tuple[ArchivedDay, ...]
    through_xid: int
    until: date
    lost: tuple[date, ...] = field(default=())

    @property
    def rows(self) -> int:
        return sum(day.rows for day in self.days)


@dataclass(frozen=True, slots=True)
class CompactedDay:
    """A day in UTC whose files a run has joined: how many attempts it has, and how many files it had before."""

    day: date
    rows: int
    files: int


def archive(
    spark: SparkSession,
    path: str,
    *,
    dsn: str | None = None,
    dsn_env: str | None = None,
    schema: str | None = None,
    today: bool = False,
    num_partitions: int | None = None,
    fail_on_data_loss: bool = True,
    accepted_origin: str | None = None,
    progress: Callable[[ArchivedDay], None] | None = None,
) -> ArchiveResult:
    """Update the archive at *path* from the history.

    A run adds each day that is not archived yet. To an archived day, it adds the attempts that were recorded after the
    day was archived. Each addition becomes visible by one rename, so readers never see half of an addition. If a run
    dies, the next run continues. Run this after midnight UTC, and before housekeeping drops the oldest day.

    Args:
        spark: A classic session; not Spark Connect, since the run uses the session's file systems.
        path: A folder on a file system of the session with atomic renames.
        dsn: The database of the history; or give *dsn_env*, the variable that has the dsn on driver and executors.
        schema: The schema of the installation, by default the connection's current schema.
        today: Whether to archive the present day so far, which creates a file at each run.
        num_partitions: How many tasks read a day, by default one for each quarter of a million rows, up to 16.
        fail_on_data_loss: Whether days that were dropped unarchived, or rows that changed meanwhile, are an error.
        accepted_origin: Lets the run continue an archive that belongs to another history. Give the origin of the
            history that is in the database now; the error OriginChanged names it.
        progress: Called after each changed day.

    Raises:
        ArchiveBusy: Another process updates the archive.
        ArchiveDamaged: A file is missing, unknown, there twice, unreadable, or of a later version of this library.
        OriginChanged: The archive belongs to another history.
        DataLoss: Days were dropped from the history before they were archived.
        ArchiveError: The lock was lost, or rows of the history changed during the run.
    """
    raw_options = _raw_options(
        dsn=dsn, dsnEnv=dsn_env, schema=schema, acceptedOrigin=accepted_origin, numPartitions=num_partitions,
        failOnDataLoss=str(fail_on_data_loss).lower(),
    )  # fmt: skip
    options = read_options(ReadOptions, raw_options)
    storage = Storage(spark, path)
    with _opened(spark, options, "archive the history") as (connection, namespace):
        pruned = last_pruned(connection, namespace)
        if (marker := storage.marker()) is None:
            marker = Marker(horizon(connection, namespace).origin, pruned)
            storage.save_marker(marker, new=True)
        check_lock = _lock(connection, storage, marker, path)
        # The horizon is read under the lock. If it were read before, another run could archive beyond it meanwhile.
        now = horizon(connection, namespace)
        archived = archived_through(_own_files(storage, marker, now, options.accepted_origin))
        if lost := lost_days(connection, namespace, archived, marker.pruned):
            days = ", ".join(str(day_of(day)) for day in lost)
            what = f"attempts of {days} were pruned from the history before they were archived"
            note_loss(options, what, "archive more often or keep the history longer")
        if marker != marker.updated(now.origin, pruned):
            # Rows that were pruned until now are archived or were reported as lost. The marker notes this, so that they
            # do not count as lost if somebody later removes their folder from the archive.
            marker = marker.updated(now.origin, pruned)
            storage.save_marker(marker, new=False)
        [(time,)] = query(connection, "now", {}, schema=namespace)
        until = int(time) // DAY + today
        added = []
        for day, rows in pending_rows(connection, namespace, archived, now.xmin, until).items():
            file = ArchiveFile(day, archived.get(day, 0), now.xmin)
            given = raw_options | {"numPartitions": str(task_count(0, rows, options.num_partitions))}
            frame = _frame(spark, given, file, Offset(now.origin, Position(), marker.pruned))
            written = storage.write(frame, file)
            if written != rows and options.fail_on_data_loss:
                raise ArchiveError(
                    f"{file.folder} was read as {written} rows and counted as {rows}: rows of the history were "
                    "deleted or changed meanwhile; run the archive again, with fail_on_data_loss=False to go on"
                )
            check_lock()
            storage.publish(file)
            added.append(ArchivedDay(day_of(day), written, is_late=day in archived))
            if progress is not None:
                progress(added[-1])
        storage.clean()
    return ArchiveResult(tuple(added), now.xmin, day_of(until), tuple(map(day_of, lost)))


def compact_archive(
    spark: SparkSession,
    path: str,
    *,
    dsn: str | None = None,
    dsn_env: str | None = None,
    schema: str | None = None,
    min_files: int = 2,
    progress: Callable[[CompactedDay], None] | None = None,
) -> tuple[CompactedDay, ...]:
    """Join the files of each day that has several files in the archive at *path*.

    A query of :func:`read_archive`, or a report, sees each attempt exactly once, or fails. If the run removes the old
    files of a day while a query still reads them, the query fails: repeat it. If a run dies, no attempt is lost or
    doubled. The next run of this function or of :func:`archive` removes what the dead run left.

    Args:
        dsn: The database of the archive's history and lock. *dsn_env* and *schema* are as for :func:`archive`.
        min_files: Join days with at least this many files.

    Raises:
        ArchiveBusy, ArchiveDamaged: As for :func:`archive`.
        ArchiveError: There is no archive, this run lost its lock, or a joined file has a wrong number of rows.
        OriginChanged: The archive belongs to another history; run :func:`archive` with *accepted_origin* first.
    """
    options = read_options(ReadOptions, _raw_options(dsn=dsn, dsnEnv=dsn_env, schema=schema))
    check_count("min_files", min_files, 2, 2**31 - 1)
    storage = Storage(spark, path)
    done = []
    with _opened(spark, options, "compact the archive") as (connection, namespace):
        marker = storage.marker()
        if marker is None:
            raise ArchiveError(f"there is no archive at {path}; give the folder that archive() has made")
        check_lock = _lock(connection, storage, marker, path)
        days: dict[int, list[ArchiveFile]] = {}
        for one in sorted(_own_files(storage, marker, horizon(connection, namespace), options.accepted_origin)):
            days.setdefault(one.day, []).append(one)
        archived = archived_through(one for files in days.values() for one in files)
        if marker != marker.updated(marker.origin, marker.pruned):
            # Joined files have the present columns, so a library that does not know them must not add to the archive.
            storage.save_marker(marker.updated(marker.origin, marker.pruned), new=False)
        for day, files in sorted(days.items()):
            if len(files) < min_files:
                continue
            joined = ArchiveFile(day, 0, archived[day])
            found = storage.read(files)
            frame = found.withColumn("cost", coalesce(found["cost"], lit(1))).repartition(1)
            rows = found.count()
            written = storage.write(frame.sortWithinPartitions("finished_at", "id"), joined)
            if written != rows:
                raise ArchiveError(f"{joined.folder} has {rows} rows and was joined to {written}; run it again")
            check_lock()
            # From the rename on, readers pass over the files that the joined file covers.
            storage.publish(joined)
            for one in files:
                storage.remove(one)
            done.append(CompactedDay(day_of(day), rows, len(files)))
            if progress is not None:
                progress(done[-1])
        storage.clean()
    return tuple(done)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the archive as a frame: the columns of the history, and ``day``, the UTC day of ``finished_at``.

    In files from before costs and groups existed, each attempt has cost 1 and no group.
    """
    reader = spark.read.schema(frame_schema(HISTORY, ()).add("day", "date"))
    listings = 0
    while True:
        frame = reader.parquet(path)
        files = [unquote(file) for file in frame.inputFiles()]
        listings += 1
        if listings == LISTINGS or not has_gap(files):
            break
    if covered := superseded(files):
        frame = reader.option("basePath", path).parquet(*(file for file in files if file not in covered))
    return frame.withColumn("cost", coalesce(frame["cost"], lit(1)))


def _raw_options(**given: Any) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value is not None}


def pending_rows(
    connection: psycopg.Connection, schema: str, archived: Mapping[int, int], high: int, until: int
) -> dict[int, int]:
    """Return how many rows the archive lacks, for each day before *until* from which rows are missing.

    The function counts only rows that were recorded by transactions with ids below *high*. *archived* is the result of
    :func:`archived_through`. Call the function outside of a transaction.
    """
    found: dict[int, int] = {}
    with connection.transaction():
        # Housekeeping may move rows between partitions meanwhile; in one snapshot each row is counted once.
        connection.execute("set transaction isolation level repeatable read")
        for first, last, low in _day_ranges(archived, until):
            values = {"since": first * DAY, "until": last * DAY, "low": str(low), "high": str(high)}
            found |= dict(query(connection, "unarchived_rows", values, schema=schema))
    return dict(sorted(found.items()))


def lost_days(connection: psycopg.Connection, schema: str, archived: Mapping[int, int], pruned: int) -> list[int]:
    rows = query(connection, "pruned_days", {"pruned": pruned}, schema=schema)
    return sorted({day for _, day, xid in rows if xid >= archived.get(day, 0)})


def _day_ranges(archived: Mapping[int, int], until: int) -> Iterator[tuple[int, int, int]]:
    reached = 0
    for day, high in sorted(archived.items()):
        if day >= until:
            break
        if day > reached:
            yield reached, day, 0
        yield day, day + 1, high
        reached = day + 1
    if reached < until:
        yield reached, until, 0


def _own_files(storage: Storage, marker: Marker, now: Horizon, accepted: str | None) -> list[ArchiveFile]:
    """Check the origin of the archive, remove the files that dead runs left, and return the other files.

    If the check raises OriginChanged, nothing is removed, since the archive's lock may be in another database.
    """
    found = {file.path: file for file in storage.archive_files()}
    covered = superseded(found)
    kept = [file for path, file in found.items() if path not in covered]
    last = max(archived_through(kept).values(), default=1) - 1
    check_origin(Offset(marker.origin, Position(last, _LAST_ID), marker.pruned), now, accepted)
    storage.clean()
    for path in covered:
        storage.remove(found[path])
    return kept


@contextmanager
def _opened(spark: SparkSession, options: ReadOptions, action: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """Yield a connection and the quoted schema. Meanwhile Spark's session writes timestamps as microseconds in UTC."""
    try:
        register(spark)
    except AnalysisException as error:
        # Some sessions refuse a second registration.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    before = spark.conf.get(_TIMESTAMPS)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        with reading_connection(options, "archive") as found, translated_errors(action):
            yield found
    finally:
        spark.conf.set(_TIMESTAMPS, str(before))


def _lock(connection: psycopg.Connection, storage: Storage, marker: Marker, path: str) -> Callable[[], None]:
    """Take the archive's lock, and return a check, which raises ArchiveError if the lock was lost with the connection.

    Raise ArchiveBusy if another process keeps the lock for two seconds. Raise ArchiveBusy, too, if another process has
    changed the archive's marker since *marker* was read.
    """
    key = f"fairqueue archive {marker.archive}"
    try:
        # Wait for the lock, since the server may notice late that a process died. The lock outlives the transaction,
        # the timeout does not.
        with connection.transaction():
            connection.execute("select set_config('lock_timeout', %s, true)", [_LOCK_TIMEOUT])
            connection.execute("select pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended(%s, 0))", [key])
    except psycopg.errors.LockNotAvailable:
        raise ArchiveBusy(f"another process is bringing the archive at {path} up to date; wait for its end") from None
    # Another process may have created or changed the archive before the lock was free.
    if storage.marker() != marker:
        raise ArchiveBusy(f"another process has just begun or changed the archive at {path}; run it again")

    def check_lock() -> None:
        try:
            connection.execute("select")
        except psycopg.OperationalError as error:
            raise ArchiveError(
                "the connection that holds the archive's lock was lost; run the archive again: it goes "
                "on after the last finished day"
            ) from error

    return check_lock


def _frame(spark: SparkSession, raw_options: Mapping[str, str], file: ArchiveFile, start: Offset) -> DataFrame:
    after = Position(file.low - 1, _LAST_ID) if file.low else Position()
    found = spark.read.format("fairqueue").options(
        **raw_options,
        since=instant(file.day * DAY).isoformat(),
        until=instant((file.day + 1) * DAY).isoformat(),
        startingOffsets=str(Offset(start.origin, after, start.pruned)),
        endingOffsets=str(Offset(start.origin, Position(file.high - 1, _LAST_ID), start.pruned)),
    )
    frame = found.load()
    together = frame.coalesce(1) if raw_options["numPartitions"] == "1" else frame.repartition(1)
    return together.sortWithinPartitions("finished_at", "id")
