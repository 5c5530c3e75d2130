"""The archive: the history as Parquet by day, whatever comes late and whoever dies at it."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyarrow import parquet

from sqlalchemy_fairqueue import InvalidArgument
from sqlalchemy_fairqueue.reporting import history
from sqlalchemy_fairqueue.reporting.history import ArchiveFile
from sqlalchemy_fairqueue.spark import archiving
from sqlalchemy_fairqueue.spark.archive_storage import Storage
from sqlalchemy_fairqueue.spark.archiving import ArchivedDay, ArchiveResult
from sqlalchemy_fairqueue.spark.errors import ArchiveBusy, ArchiveDamaged, ArchiveError, DataLoss
from sqlalchemy_fairqueue.spark.reading.offsets import OriginChanged
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, frame_schema
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.spark.recorded import COLUMNS, DAY, NOON, add, in_order, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Archive = Callable[..., ArchiveResult]
_EPOCH = date(1970, 1, 1)


@pytest.fixture
def database(database_alone: Database) -> Database:
    """On a server without other tests, whose transactions would keep rows of the history back."""
    return database_alone


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the archive is."""
    return tmp_path / "archive"


@pytest.fixture
def archive(spark: "SparkSession", database: Database, folder: Path) -> Archive:
    """Bring the archive up to date: ``archive(today=True)``."""

    def run(**options: Any) -> ArchiveResult:
        return archiving.archive(spark, str(folder), dsn=database.conninfo, **options)

    return run


@pytest.fixture
def noon(clock: Clock) -> Clock:
    """A clock at noon UTC, far from the change of the day."""
    now = clock.now()
    clock.advance(timedelta(hours=36) - (now - now.replace(hour=0, minute=0, second=0)))
    return clock


@pytest.fixture
def rows_at_hand(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a file by plain SQL: reading is not what the test is about, and takes Spark seconds."""

    def frame(spark: "SparkSession", _words: object, file: ArchiveFile, _start: object) -> object:
        day = _EPOCH + timedelta(days=file.day)
        rows = [one for one in table(database) if one[11].date() == day and file.low <= one[14] < file.high]
        return spark.createDataFrame(rows, frame_schema(HISTORY, ())).coalesce(1)

    monkeypatch.setattr(archiving, "_frame", frame)


def ids(spark: "SparkSession", folder: Path) -> dict[str, list[int]]:
    """What readers find: the ids of each day."""
    found: dict[str, list[int]] = {}
    for day, number in sorted(archiving.read_archive(spark, str(folder)).selectExpr("string(day)", "id").collect()):
        found.setdefault(day, []).append(number)
    return found


def files(folder: Path) -> list[str]:
    """What readers look at."""
    return sorted(str(file.relative_to(folder)) for file in folder.glob("[!_.]*/[!_.]*"))


def test_days_that_are_over_are_archived_row_for_row(
    spark: "SparkSession", database: Database, folder: Path, archive: Archive, noon: Clock
) -> None:
    """Each day is a file of what the table holds; today waits, or comes as far as it goes; again changes nothing."""
    today = noon.now()
    add(database, 8, finished=today - 2 * DAY)
    add(database, 4, finished=today - DAY)
    add(database, 2, finished=today)
    seen: list[ArchivedDay] = []
    result = archive(progress=seen.append)
    found = [(today.date() - one.day, one.rows, one.is_late) for one in result.days]
    assert found == [(2 * DAY, 8, False), (DAY, 4, False)]
    assert (result.days, result.rows, result.until) == (tuple(seen), 12, today.date())
    first = files(folder)
    assert [name.split("/")[0] for name in first] == [f"day={today - days * DAY:%Y-%m-%d}" for days in (2, 1)]
    assert archive().days == ()
    assert [(one.rows, one.is_late) for one in archive(today=True).days] == [(2, False)]
    assert files(folder)[:2] == first
    frame = archiving.read_archive(spark, str(folder))
    assert tuple(frame.columns) == (*COLUMNS, "day")
    micros = [f"unix_micros({name})" for name in COLUMNS[8:12]]
    assert in_order(frame.selectExpr(*COLUMNS[:8], *micros, *COLUMNS[12:], "string(day)").collect()) == [
        (*row[:8], *(round(at.timestamp() * 1e6) for at in row[8:12]), *row[12:], f"{row[11]:%Y-%m-%d}")
        for row in table(database)
    ]


def test_what_comes_late_is_added(
    spark: "SparkSession", database: Database, folder: Path, archive: Archive, noon: Clock
) -> None:
    """Rows of archived days that commit later, out of order and behind a long transaction, are one more file."""
    day = f"{noon.now() - DAY:%Y-%m-%d}"
    with closing(psycopg.connect(database.conninfo)) as long_writer:
        add(database, 2, finished=noon.now() - DAY)
        add(long_writer, 1, finished=noon.now() - DAY)
        add(database, 2, finished=noon.now() - DAY)
        assert archive().rows == 2
        add(long_writer, 1, finished=noon.now() - DAY)
        assert archive().days == ()
        long_writer.commit()
    before = files(folder)
    (late,) = archive().days
    assert (late.rows, late.is_late) == (4, True)
    assert ids(spark, folder) == {day: [1, 2, 3, 4, 5, 6]}
    assert len(files(folder)) == 2
    assert set(before) < set(files(folder))


class Killed(BaseException):
    """Stands for the end of the process."""


class Death:
    """Kills a run before and after each thing that it does to files, at each once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
        self.met: set[str] = set()
        self.calls: Counter[str] = Counter()
        for name in ("save_marker", "clean", "write", "publish", "_rename", *more):
            monkeypatch.setattr(Storage, name, self._around(name))

    def _around(self, name: str) -> Callable[..., Any]:
        real = getattr(Storage, name)

        def step(storage: Storage, *arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            subject = {"write": 1, "publish": 0, "_rename": 1}.get(name)
            what = self.calls[name] if subject is None else arguments[subject]
            self._strike(f"before {name} {what}")
            result = real(storage, *arguments, **options)
            self._strike(f"after {name} {what}")
            return result

        return step

    def _strike(self, moment: str) -> None:
        if moment not in self.met:
            self.met.add(moment)
            raise Killed(moment)


@pytest.mark.usefixtures("rows_at_hand")
def test_a_run_that_dies_anywhere_is_taken_up(
    spark: "SparkSession", database: Database, folder: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after anything done to files: readers see whole days, and the runs after it end with each row once."""
    for back in (2, 1):
        add(database, 3, finished=NOON - back * DAY)
    death, killed, result = Death(monkeypatch), 0, None
    while result is None:
        death.calls.clear()
        try:
            result = archive()
        except Killed:
            killed += 1
            assert all(parquet.read_metadata(folder / name).num_rows == 3 for name in files(folder))
    assert killed == len(death.met) >= 17
    assert result.days == ()
    assert [len(rows) for rows in ids(spark, folder).values()] == [3, 3]
    assert [name.split("/")[0] for name in files(folder)] == [f"day={NOON - back * DAY:%Y-%m-%d}" for back in (2, 1)]
    assert not list(folder.glob("_fairqueue_work*"))


@pytest.mark.usefixtures("rows_at_hand")
def test_one_process_at_a_time(
    archive: Archive, database: Database, noon: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is at it another is refused; a connection lost meanwhile ends the run before it shows anything more."""
    monkeypatch.setattr(archiving, "_LOCK_TIMEOUT", "50ms")
    for back in (2, 1):
        add(database, 3, finished=noon.now() - back * DAY)

    def meanwhile(_: ArchivedDay) -> None:
        with pytest.raises(ArchiveBusy, match=r"another process is bringing the archive at .* up to date; wait"):
            archive()
        database.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name = 'fairqueue spark archive'"
        )

    with pytest.raises(ArchiveError, match="the connection that holds the archive's lock was lost"):
        archive(progress=meanwhile)
    assert [one.day for one in archive().days] == [(noon.now() - DAY).date()]


def test_another_database_is_refused_and_touches_nothing(
    spark: "SparkSession", archive: Archive, database: Database, folder: Path, make_database: Callable[..., Database]
) -> None:
    """The lock of the archive is not there, so a run may be under way: its unfinished file stays. An archive goes on
    with another history only where that is accepted by name.
    """
    archive()
    unfinished = folder / "_fairqueue_work" / "part-1.parquet"
    unfinished.parent.mkdir()
    unfinished.touch()
    other = make_database()
    found = ""
    for run in (archiving.archive, archiving.compact_archive):
        with pytest.raises(OriginChanged, match="rows may be missing or come twice") as refusal:
            run(spark, str(folder), dsn=other.conninfo)
        found = str(refusal.value.found_origin)
        assert unfinished.exists()
    archiving.compact_archive(spark, str(folder), dsn=database.conninfo)
    assert not unfinished.exists()
    archiving.archive(spark, str(folder), dsn=other.conninfo, accepted_origin=found)
    archiving.archive(spark, str(folder), dsn=other.conninfo)
    with pytest.raises(OriginChanged):
        archive()


def columns_of(folder: Path, columns: int | None = 0) -> int:
    """The version of the columns in the marker, before it is set to *columns*; None: left out."""
    path = folder / "_fairqueue.json"
    marker = json.loads(path.read_text())
    found: int = marker.pop("columns")
    if columns != 0:
        (folder / "._fairqueue.json.crc").unlink()
        path.write_text(json.dumps(marker | ({"columns": columns} if columns else {})))
    return found


def drop_days(database: Database, clock: Clock) -> None:
    """Forty days pass, and with them the days of the history."""
    database.execute("select fq_keep_history(0)")
    clock.advance(40 * DAY)
    database.execute("select fq_keep_history(0)")


def in_process(folder: Path) -> list[Any]:
    """What the report in the process finds."""
    return sorted(history.read_archive(folder).attempts["id"].to_pylist())


def scattered(database: Database, archive: Archive, noon: Clock) -> None:
    """An archive with three files of a day and one file of another."""
    add(database, 1, finished=noon.now() - 2 * DAY)
    for count in (3, 2, 1):
        add(database, count, finished=noon.now() - DAY)
        archive()


@pytest.mark.usefixtures("rows_at_hand")
def test_files_of_a_day_are_joined(
    spark: "SparkSession", database: Database, folder: Path, archive: Archive, noon: Clock
) -> None:
    """One file in the order in which attempts finished, with all their columns; late rows are added to it as ever.

    Joined files that a run has not removed when it died are passed over by readers; the next run removes them.
    """
    scattered(database, archive, noon)
    before = archiving.read_archive(spark, str(folder)).orderBy("id").collect()
    old = {name: (folder / name).read_bytes() for name in files(folder)[1:]}
    assert [name.count("-") for name in files(folder)] == [4] * 4
    assert archiving.compact_archive(spark, str(folder), dsn=database.conninfo, min_files=4) == ()
    seen: list[archiving.CompactedDay] = []
    (done,) = archiving.compact_archive(spark, str(folder), dsn=database.conninfo, progress=seen.append)
    assert (done.day, done.rows, done.files, seen) == ((noon.now() - DAY).date(), 6, 3, [done])
    assert len(files(folder)) == 2
    assert archiving.read_archive(spark, str(folder)).orderBy("id").collect() == before
    finished = parquet.read_table(folder / files(folder)[1])["finished_at"].to_pylist()
    assert finished == sorted(finished)
    assert archiving.compact_archive(spark, str(folder), dsn=database.conninfo) == ()
    add(database, 2, finished=noon.now() - DAY)
    assert [(one.rows, one.is_late) for one in archive().days] == [(2, True)]
    assert [len(rows) for rows in ids(spark, folder).values()] == [1, 8]
    for left in ((0, 2), (1,)):
        for number in left:
            name = list(old)[number]
            (folder / name).write_bytes(old[name])
        assert in_process(folder) == list(range(1, 10))
        assert sum(map(len, ids(spark, folder).values())) == 9
        assert archive().days == ()
        assert len(files(folder)) == 3


@pytest.mark.usefixtures("rows_at_hand")
def test_a_run_that_dies_while_it_joins_files_is_taken_up(
    spark: "SparkSession", database: Database, folder: Path, archive: Archive, *, noon: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before and after anything done to files, and between their removals: both readers see each attempt once.

    The marker of an older archive tells of the newest columns before a file has them.
    """
    scattered(database, archive, noon)
    assert columns_of(folder, 1) == 2
    death, done, overlapping = Death(monkeypatch, "remove"), None, 0
    while done is None:
        death.calls.clear()
        try:
            done = archiving.compact_archive(spark, str(folder), dsn=database.conninfo)
        except Killed:
            if len(files(folder)) == 5:
                overlapping += 1
                assert sum(map(len, ids(spark, folder).values())) == 7
            assert columns_of(folder) == 2 or len(files(folder)) == 4
            assert in_process(folder) == list(range(1, 8))
    assert overlapping >= 2
    assert (done, len(files(folder))) == ((), 2)
    assert not list(folder.glob("_fairqueue_work*"))


@pytest.mark.usefixtures("rows_at_hand")
def test_days_that_went_unarchived_are_noticed(
    spark: "SparkSession", archive: Archive, database: Database, folder: Path, noon: Clock
) -> None:
    """A day dropped before it was archived is an error, or a warning once; one dropped after is neither."""
    add(database, 1, finished=noon.now() - DAY)
    assert archive().rows == 1
    add(database, 1, finished=noon.now())
    drop_days(database, noon)
    lost = noon.now().date() - 40 * DAY
    with pytest.raises(DataLoss, match=f"attempts of {lost} were pruned from the history before"):
        archive()
    assert archive(fail_on_data_loss=False).lost == (lost,)
    add(database, 1, finished=noon.now() - DAY)
    assert [(one.rows, one.is_late) for one in archive().days] == [(1, False)]
    assert [len(rows) for rows in ids(spark, folder).values()] == [1, 1]


@pytest.mark.usefixtures("rows_at_hand")
def test_days_that_leave_the_archive_are_no_loss(
    spark: "SparkSession", archive: Archive, database: Database, folder: Path, noon: Clock
) -> None:
    """What a run has seen dropped after it was archived may leave the archive; one that was not is a loss."""
    add(database, 1, finished=noon.now() - DAY)
    (old,) = archive().days
    drop_days(database, noon)
    assert archive().days == ()
    shutil.rmtree(folder / f"day={old.day}")
    assert archive().lost == ()
    add(database, 1, finished=noon.now())
    drop_days(database, noon)
    for _ in range(2):
        with pytest.raises(DataLoss, match=f"attempts of {noon.now().date() - 40 * DAY} were pruned"):
            archive()
    assert ids(spark, folder) == {}


def test_strange_folders_are_refused(spark: "SparkSession", database: Database, archive: Archive, folder: Path) -> None:
    """No folder at all is compacted. A folder with other files, a file that no run made, a missing one, a marker that
    cannot be read.
    """

    def refused(words: str) -> None:
        with pytest.raises(ArchiveDamaged, match=words):
            archive()

    with pytest.raises(ArchiveError, match="there is no archive at"):
        archiving.compact_archive(spark, str(folder), dsn=database.conninfo)
    with pytest.raises(InvalidArgument, match="min_files"):
        archiving.compact_archive(spark, str(folder), dsn=database.conninfo, min_files=1)
    assert not folder.exists()
    folder.mkdir()
    other = folder / "other.parquet"
    other.touch()
    refused(r"is no archive and not empty: it holds other\.parquet")
    other.unlink()
    archive()
    (folder / "day=2026-01-01").mkdir()
    stranger = folder / "day=2026-01-01" / "part-1.parquet"
    stranger.touch()
    refused(r"day=2026-01-01/part-1\.parquet is no file of an archive")
    stranger = stranger.rename(stranger.with_name("history-5-9.parquet"))
    refused("does not follow on transaction 0")
    stranger.unlink()
    columns_of(folder, 99)
    refused("is of version 99 of the columns, and this library writes version 2")
    (folder / "_fairqueue.json").write_text("{}")
    refused("cannot be read")


@pytest.mark.usefixtures("rows_at_hand")
def test_an_archive_of_older_columns_is_continued(
    spark: "SparkSession", database: Database, folder: Path, archive: Archive, noon: Clock
) -> None:
    """Files from before the history had costs and groups stay as they are: each of their attempts has cost 1 and no
    group, for Spark and for the report in the process. The next run adds files that have them, and says so in the
    marker.
    """
    add(database, 4, finished=noon.now() - 2 * DAY)
    archive()
    (old,) = folder.glob("day=*/*.parquet")
    parquet.write_table(parquet.ParquetFile(old).read().drop_columns(["cost", "group"]), old)
    old.with_name(f".{old.name}.crc").unlink()
    assert columns_of(folder, None) == 2
    add(database, 4, finished=noon.now() - DAY)
    assert archive().rows == 4
    assert columns_of(folder) == 2
    expected = [1, 1, 1, 1, 2, 3, 4, 5]
    rows = archiving.read_archive(spark, str(folder)).orderBy("id").collect()
    assert [row.cost for row in rows] == expected
    assert [row.group is not None for row in rows] == [False] * 6 + [True, False]
    assert history.read_archive(folder).attempts.sort_by("id")["cost"].to_pylist() == expected
