"""The archive: the history as Parquet by day, whatever comes late and whoever dies at it."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from sqlalchemy_fairqueue import InvalidArgument
from sqlalchemy_fairqueue.reporting import history
from sqlalchemy_fairqueue.reporting.history import ArchiveFile
from sqlalchemy_fairqueue.spark import archiving
from sqlalchemy_fairqueue.spark.archive_storage import Storage
from sqlalchemy_fairqueue.spark.archiving import ArchivedDay, ArchiveResult, CompactedDay
from sqlalchemy_fairqueue.spark.errors import ArchiveBusy, ArchiveDamaged, ArchiveError, DataLoss
from sqlalchemy_fairqueue.spark.reading.offsets import OriginChanged
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY, frame_schema
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.spark.recorded import COLUMNS, DAY, add, held, seen, table

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive, and the history that it is of, on a server without other tests, whose transactions would keep rows of
    the history back. Its clock begins at noon UTC, far from the change of the day.
    """

    spark: SparkSession
    database: Database
    folder: Path
    clock: Clock

    def day(self, back: int) -> datetime:
        """Now, so many days ago."""
        return self.clock.now() - back * DAY

    def add(self, count: int, back: int = 1, *, to: psycopg.Connection | None = None) -> None:
        """Record so many attempts that finished so many days ago."""
        add(to or self.database, count, finished=self.day(back))

    def drop_days(self) -> None:
        """Forty days pass, and with them the days of the history."""
        self.database.execute("select fq_keep_history(0)")
        self.clock.advance(40 * DAY)
        self.database.execute("select fq_keep_history(0)")

    def run(self, *, of: Database | None = None, **options: Any) -> ArchiveResult:
        """Bring it up to date."""
        return archiving.archive(self.spark, str(self.folder), dsn=(of or self.database).conninfo, **options)

    def compact(self, *, of: Database | None = None, **options: Any) -> tuple[CompactedDay, ...]:
        """Join the files of days."""
        return archiving.compact_archive(self.spark, str(self.folder), dsn=(of or self.database).conninfo, **options)

    def frame(self) -> DataFrame:
        """What Spark reads."""
        return archiving.read_archive(self.spark, str(self.folder))

    def ids(self) -> dict[str, list[int]]:
        """What Spark reads: the ids of each day."""
        found: dict[str, list[int]] = {}
        for day, number in sorted(self.frame().selectExpr("string(day)", "id").collect()):
            found.setdefault(day, []).append(number)
        return found

    def in_process(self) -> list[Any]:
        """What the report in the process finds."""
        return sorted(history.read_archive(self.folder).attempts["id"].to_pylist())

    def files(self) -> list[str]:
        """What readers look at."""
        return sorted(str(file.relative_to(self.folder)) for file in self.folder.glob("[!_.]*/[!_.]*"))

    def columns(self, columns: int | None = 0) -> int:
        """The version of the columns in the marker, before it is set to *columns*; None: left out."""
        path = self.folder / "_fairqueue.json"
        marker = json.loads(path.read_text())
        found: int = marker.pop("columns")
        if columns != 0:
            (self.folder / "._fairqueue.json.crc").unlink()
            path.write_text(json.dumps(marker | ({"columns": columns} if columns else {})))
        return found


@pytest.fixture
def database(database_alone: Database) -> Database:
    """The history."""
    return database_alone


@pytest.fixture
def by_spark(spark: SparkSession, database: Database, tmp_path: Path, clock: Clock) -> Archive:
    """An archive that is not there yet."""
    now = clock.now()
    clock.advance(timedelta(hours=36) - (now - now.replace(hour=0, minute=0, second=0)))
    return Archive(spark, database, tmp_path / "archive", clock)


@pytest.fixture
def archive(by_spark: Archive, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """Its rows come by plain SQL: reading is not what the test is about, and takes Spark seconds."""

    def frame(spark: SparkSession, _words: object, file: ArchiveFile, _start: object) -> object:
        day = _EPOCH + timedelta(days=file.day)
        rows = [one for one in table(by_spark.database) if one[11].date() == day and file.low <= one[14] < file.high]
        return spark.createDataFrame(rows, frame_schema(HISTORY, ())).coalesce(1)

    monkeypatch.setattr(archiving, "_frame", frame)
    return by_spark


def test_days_that_are_over_are_archived_row_for_row(by_spark: Archive) -> None:
    """Each day is a file of what the table holds; today waits, or comes as far as it goes; again changes nothing."""
    archive, today = by_spark, by_spark.day(0)
    for count, back in ((8, 2), (4, 1), (2, 0)):
        archive.add(count, back)
    told: list[ArchivedDay] = []
    result = archive.run(progress=told.append)
    found = [(today.date() - one.day, one.rows, one.is_late) for one in result.days]
    assert found == [(2 * DAY, 8, False), (DAY, 4, False)]
    assert (result.days, result.rows, result.until) == (tuple(told), 12, today.date())
    first = archive.files()
    assert [name.split("/")[0] for name in first] == [f"day={today - days * DAY:%Y-%m-%d}" for days in (2, 1)]
    assert archive.run().days == ()
    assert [(one.rows, one.is_late) for one in archive.run(today=True).days] == [(2, False)]
    assert archive.files()[:2] == first
    frame = archive.frame()
    assert tuple(frame.columns) == (*COLUMNS, "day")
    assert seen(frame) == held(archive.database)


def test_what_comes_late_is_added(by_spark: Archive) -> None:
    """Rows of archived days that commit later, out of order and behind a long transaction, are one more file."""
    archive = by_spark
    with closing(psycopg.connect(archive.database.conninfo)) as long_writer:
        archive.add(2)
        archive.add(1, to=long_writer)
        archive.add(2)
        assert archive.run().rows == 2
        archive.add(1, to=long_writer)
        assert archive.run().days == ()
        long_writer.commit()
    (before,) = archive.files()
    (late,) = archive.run().days
    assert (late.rows, late.is_late) == (4, True)
    assert archive.ids() == {f"{archive.day(1):%Y-%m-%d}": [1, 2, 3, 4, 5, 6]}
    assert len(archive.files()) == 2
    assert before in archive.files()


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


def test_a_run_that_dies_anywhere_is_taken_up(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after anything done to files: readers see whole days, and the runs after it end with each row once."""
    for back in (2, 1):
        archive.add(3, back)
    death, killed, result = Death(monkeypatch), 0, None
    while result is None:
        death.calls.clear()
        try:
            result = archive.run()
        except Killed:
            killed += 1
            assert all(parquet.read_metadata(archive.folder / name).num_rows == 3 for name in archive.files())
    assert killed == len(death.met) >= 17
    assert result.days == ()
    days = [f"{archive.day(back):%Y-%m-%d}" for back in (2, 1)]
    assert {day: len(rows) for day, rows in archive.ids().items()} == dict.fromkeys(days, 3)
    assert [name.split("/")[0] for name in archive.files()] == [f"day={day}" for day in days]
    assert not list(archive.folder.glob("_fairqueue_work*"))


def test_one_process_at_a_time(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is at it another is refused; a connection lost meanwhile ends the run before it shows anything more."""
    monkeypatch.setattr(archiving, "_LOCK_TIMEOUT", "50ms")
    for back in (2, 1):
        archive.add(3, back)

    def meanwhile(_: ArchivedDay) -> None:
        with pytest.raises(ArchiveBusy, match=r"another process is bringing the archive at .* up to date; wait"):
            archive.run()
        ended = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = :name"
        archive.database.execute(ended, name="fairqueue spark archive")

    with pytest.raises(ArchiveError, match="the connection that holds the archive's lock was lost"):
        archive.run(progress=meanwhile)
    assert [one.day for one in archive.run().days] == [archive.day(1).date()]


def test_another_database_is_refused_and_touches_nothing(
    by_spark: Archive, make_database: Callable[..., Database]
) -> None:
    """The lock of the archive is not there, so a run may be under way: its unfinished file stays. An archive goes on
    with another history only where that is accepted by name.
    """
    archive, other, found = by_spark, make_database(), ""
    archive.run()
    unfinished = archive.folder / "_fairqueue_work" / "part-1.parquet"
    unfinished.parent.mkdir()
    unfinished.touch()
    for run in (archive.run, archive.compact):
        with pytest.raises(OriginChanged, match="rows may be missing or come twice") as refusal:
            run(of=other)
        found = str(refusal.value.found_origin)
        assert unfinished.exists()
    archive.compact()
    assert not unfinished.exists()
    archive.run(of=other, accepted_origin=found)
    archive.run(of=other)
    with pytest.raises(OriginChanged):
        archive.run()


def scattered(archive: Archive) -> None:
    """An archive with three files of a day and one file of another."""
    archive.add(1, 2)
    for count in (3, 2, 1):
        archive.add(count)
        archive.run()


def test_files_of_a_day_are_joined(archive: Archive) -> None:
    """One file in the order in which attempts finished, with all their columns; late rows are added to it as ever.

    Joined files that a run has not removed when it died are passed over by readers; the next run removes them.
    """
    scattered(archive)
    before = archive.frame().orderBy("id").collect()
    old = [(archive.folder / name, (archive.folder / name).read_bytes()) for name in archive.files()[1:]]
    assert [name.count("-") for name in archive.files()] == [4] * 4
    assert archive.compact(min_files=4) == ()
    told: list[CompactedDay] = []
    (done,) = archive.compact(progress=told.append)
    assert (done.day, done.rows, done.files, told) == (archive.day(1).date(), 6, 3, [done])
    assert len(archive.files()) == 2
    assert archive.frame().orderBy("id").collect() == before
    finished = parquet.read_table(archive.folder / archive.files()[1])["finished_at"].to_pylist()
    assert finished == sorted(finished)
    assert archive.compact() == ()
    archive.add(2)
    assert [(one.rows, one.is_late) for one in archive.run().days] == [(2, True)]
    assert [len(rows) for rows in archive.ids().values()] == [1, 8]
    for left in ((0, 2), (1,)):
        for number in left:
            path, content = old[number]
            path.write_bytes(content)
        assert archive.in_process() == list(range(1, 10))
        assert sum(map(len, archive.ids().values())) == 9
        assert archive.run().days == ()
        assert len(archive.files()) == 3


def test_a_run_that_dies_while_it_joins_files_is_taken_up(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after anything done to files, and between their removals: both readers see each attempt once.

    The marker of an older archive tells of the newest columns before a file has them.
    """
    scattered(archive)
    assert archive.columns(1) == 2
    death, done, overlapping = Death(monkeypatch, "remove"), None, 0
    while done is None:
        death.calls.clear()
        try:
            done = archive.compact()
        except Killed:
            if len(archive.files()) == 5:
                overlapping += 1
                assert sum(map(len, archive.ids().values())) == 7
            assert archive.columns() == 2 or len(archive.files()) == 4
            assert archive.in_process() == list(range(1, 8))
    assert overlapping >= 2
    assert (done, len(archive.files())) == ((), 2)
    assert not list(archive.folder.glob("_fairqueue_work*"))


def test_days_that_went_unarchived_are_noticed(archive: Archive) -> None:
    """A day dropped before it was archived is an error, or a warning once; one dropped after is neither."""
    archive.add(1)
    assert archive.run().rows == 1
    archive.add(1, 0)
    archive.drop_days()
    lost = archive.day(40).date()
    with pytest.raises(DataLoss, match=f"attempts of {lost} were pruned from the history before"):
        archive.run()
    assert archive.run(fail_on_data_loss=False).lost == (lost,)
    archive.add(1)
    assert [(one.rows, one.is_late) for one in archive.run().days] == [(1, False)]
    assert [len(rows) for rows in archive.ids().values()] == [1, 1]


def test_days_that_leave_the_archive_are_no_loss(archive: Archive) -> None:
    """What a run has seen dropped after it was archived may leave the archive; one that was not is a loss."""
    archive.add(1)
    (old,) = archive.run().days
    archive.drop_days()
    assert archive.run().days == ()
    shutil.rmtree(archive.folder / f"day={old.day}")
    assert archive.run().lost == ()
    archive.add(1, 0)
    archive.drop_days()
    for _ in range(2):
        with pytest.raises(DataLoss, match=f"attempts of {archive.day(40).date()} were pruned"):
            archive.run()
    assert archive.ids() == {}


def test_strange_folders_are_refused(by_spark: Archive) -> None:
    """No folder at all is compacted. A folder with other files, a file that no run made, a missing one, a marker that
    cannot be read.
    """
    archive, folder = by_spark, by_spark.folder

    def refused(words: str) -> None:
        with pytest.raises(ArchiveDamaged, match=words):
            archive.run()

    with pytest.raises(ArchiveError, match="there is no archive at"):
        archive.compact()
    with pytest.raises(InvalidArgument, match="min_files"):
        archive.compact(min_files=1)
    assert not folder.exists()
    folder.mkdir()
    other = folder / "other.parquet"
    other.touch()
    refused(r"is no archive and not empty: it holds other\.parquet")
    other.unlink()
    archive.run()
    (folder / "day=2026-01-01").mkdir()
    stranger = folder / "day=2026-01-01" / "part-1.parquet"
    stranger.touch()
    refused(r"day=2026-01-01/part-1\.parquet is no file of an archive")
    stranger = stranger.rename(stranger.with_name("history-5-9.parquet"))
    refused("does not follow on transaction 0")
    stranger.unlink()
    archive.columns(99)
    refused("is of version 99 of the columns, and this library writes version 2")
    (folder / "_fairqueue.json").write_text("{}")
    refused("cannot be read")


def test_an_archive_of_older_columns_is_continued(archive: Archive) -> None:
    """Files from before the history had costs and groups stay as they are: each of their attempts has cost 1 and no
    group, for Spark and for the report in the process. The next run adds files that have them, and says so in the
    marker.
    """
    archive.add(4, 2)
    archive.run()
    (old,) = archive.folder.glob("day=*/*.parquet")
    parquet.write_table(parquet.ParquetFile(old).read().drop_columns(["cost", "group"]), old)
    old.with_name(f".{old.name}.crc").unlink()
    assert archive.columns(None) == 2
    archive.add(4)
    assert archive.run().rows == 4
    assert archive.columns() == 2
    expected = [1, 1, 1, 1, 2, 3, 4, 5]
    rows = archive.frame().orderBy("id").collect()
    assert [row.cost for row in rows] == expected
    assert [row.group is not None for row in rows] == [False] * 6 + [True, False]
    assert history.read_archive(archive.folder).attempts.sort_by("id")["cost"].to_pylist() == expected
