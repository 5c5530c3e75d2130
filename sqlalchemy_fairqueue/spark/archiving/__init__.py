"""Archive: the history as Parquet, a folder a UTC day, kept up to date by runs that may die at any time.

Readers see a change by a single rename: the rows of a day that a run adds are one file, and its name tells its content.
``storage`` has the files, their names and the marker; ``archive_run`` finds the rows that are missing and adds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from sqlalchemy_fairqueue.reporting.history import has_gap, superseded
from sqlalchemy_fairqueue.spark.archiving.archive_run import (
    ArchivedDay,
    ArchiveResult,
    CompactedDay,
    compact_files,
    update_archive,
)
from sqlalchemy_fairqueue.spark.errors import ArchiveBusy, ArchiveDamaged, ArchiveError
from sqlalchemy_fairqueue.spark.options import read_options
from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, frame_schema
from sqlalchemy_fairqueue.values.checks import check_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

# A folder that is listed while its files are joined may lack some of them.
_LISTINGS = 5

__all__ = [
    "ArchiveBusy",
    "ArchiveDamaged",
    "ArchiveError",
    "ArchiveResult",
    "ArchivedDay",
    "CompactedDay",
    "archive",
    "compact_archive",
    "read_archive",
]


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
    """Bring the archive at *path* up to date with the history.

    A day is added whole by one rename, and so are rows of an archived day that were recorded later: readers never see
    half of what a run adds to a day. A run that dies leaves the days that it finished; the next run continues there.
    Run it after midnight UTC, and before housekeeping drops the oldest day.

    Args:
        spark: A classic session (not Spark Connect: it works with the session's file systems).
        path: A folder on any file system that the session knows and whose rename is atomic.
        dsn: Where the history is; or *dsn_env*, the variable that holds it on driver and executors.
        dsn_env: See *dsn*.
        schema: The schema of the installation; None: the connection's default.
        today: Whether the present day is archived as far as it goes, which makes a file each time.
        num_partitions: How many tasks read a day; None: one for a quarter of a million rows, up to 16.
        fail_on_data_loss: Whether days that were dropped before they were archived are an error; else a warning.
        accepted_origin: The origin, as the error wrote it, with which an archive of another origin continues.
        progress: Called after each day that was added to.

    Raises:
        ArchiveBusy: Another process updates the archive.
        ArchiveDamaged: The folder holds files that no run leaves there.
        OriginChanged: The archive is of another history.
        DataLoss: Days were dropped from the history before they were archived.
    """
    given = {"dsn": dsn, "dsnEnv": dsn_env, "schema": schema, "acceptedOrigin": accepted_origin}
    raw_options = {name: value for name, value in given.items() if value is not None}
    raw_options |= {"failOnDataLoss": str(fail_on_data_loss).lower()}
    if num_partitions is not None:
        raw_options["numPartitions"] = str(num_partitions)
    return update_archive(
        spark, path, read_options(ReadOptions, raw_options), raw_options, today=today, progress=progress
    )


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
    """Join the files of each day of the archive at *path* that has several.

    A day of joined files appears by one rename, and the files that it holds are removed then. Readers of
    :func:`read_archive` and of the report see each attempt once at any time. A run that dies loses and doubles nothing:
    the next run, of :func:`archive` or of this function, removes what it left. Queries that have begun before fail if
    they open a file that was removed: run them again.

    Args:
        spark: A classic session.
        path: The folder of an archive.
        dsn: The database of its history, where the archive's lock is; or *dsn_env*, the variable that holds it.
        dsn_env: See *dsn*.
        schema: The schema of the installation; None: the connection's default.
        min_files: The least number of files of a day that are joined.
        progress: Called after each day.

    Returns:
        The days whose files were joined.

    Raises:
        ArchiveBusy: Another process updates the archive.
        ArchiveDamaged: The folder holds files that no run leaves there.
        ArchiveError: There is no archive.
        OriginChanged: The archive is of another history. If this one continues it, run :func:`archive` with
            *accepted_origin* first.
    """
    given = {"dsn": dsn, "dsnEnv": dsn_env, "schema": schema}
    options = read_options(ReadOptions, {name: value for name, value in given.items() if value is not None})
    check_count("min_files", min_files, 2, 2**31 - 1)
    return compact_files(spark, path, options, min_files=min_files, progress=progress)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The archive as a frame: the columns of the history and ``day``, the UTC day of ``finished_at``.

    In files that were written before the history had costs, each attempt has cost 1; before it had groups, none.
    """
    from pyspark.sql.functions import coalesce, lit  # noqa: PLC0415 - they need a session

    reader = spark.read.schema(frame_schema(HISTORY, ()).add("day", "date"))
    frame = reader.parquet(path)
    files = [unquote(file) for file in frame.inputFiles()]
    for _ in range(_LISTINGS):
        if not has_gap(files):
            break
        frame = reader.parquet(path)
        files = [unquote(file) for file in frame.inputFiles()]
    if covered := superseded(files):
        frame = reader.option("basePath", path).parquet(*(file for file in files if file not in covered))
    return frame.withColumn("cost", coalesce(frame["cost"], lit(1)))
