"""Histories that are read into the process."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import (
    HistoryEmpty,
    HistoryTooLong,
    HistoryUnreadable,
    Scenario,
    read_archive,
    read_history,
    report,
)
from sqlalchemy_fairqueue.reporting.history import COLUMNS, read_plans, read_policies, read_settings
from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings
from tests.docs.pages import DOCS, blocks
from tests.fixtures.database import Database
from tests.reporting.tables import measure_table, table
from tests.spark.recorded import NOON, add
from tests.spark.report_history import nasty, store
from tests.worker.helpers import until

_PAGE = DOCS / "report.md"


def test_a_history_is_read_as_it_is(database: Database, engine: Engine) -> None:
    """Every value of every row arrives, whatever characters it has."""
    rows = nasty(attempts=200)
    store(database, rows)
    found = read_history(engine).attempts.sort_by("id")
    expected = table(rows).sort_by("id").select(list(COLUMNS))
    assert found.to_pylist() == expected.to_pylist()
    assert measure_table(found) == measure_table(expected)


def test_escapes_of_copy_are_resolved(database: Database, engine: Engine) -> None:
    """Backslashes, tabs and ends of lines in a name are those of the name."""
    add(database, 3)
    name = "a\\n\n\tb \\N \\"
    database.execute("update fq_history set channel = :name where channel_id = 1", name=name)
    assert name in read_history(engine).attempts["channel"].to_pylist()


def test_it_is_narrowed_by_queue_and_time(database: Database, engine: Engine) -> None:
    """Only attempts of the queue are read that ended since a time and before another; none where they are more than the
    most. A schema without an installation is named by the server.
    """
    add(database, 5)
    add(database, 7, queue="mails", finished=NOON + timedelta(hours=1))
    assert len(read_history(engine, queue="mails").attempts) == 7
    assert len(read_history(engine, until=NOON + timedelta(minutes=1)).attempts) == 5
    assert len(read_history(engine, since=NOON + timedelta(minutes=1)).attempts) == 7
    with pytest.raises(HistoryEmpty, match="has no attempts"):
        read_history(engine, queue="nothing")
    with pytest.raises(InvalidArgument, match="no time zone"):
        read_history(engine, since=NOON.replace(tzinfo=None))
    assert len(read_history(engine, most=12).attempts) == 12
    with pytest.raises(HistoryTooLong, match="more than 11 attempts; narrow it"):
        read_history(engine, most=11)
    with pytest.raises(HistoryUnreadable, match=r"cannot be read: .*nowhere.fq_history.* \(SQLSTATE 42P01\)"):
        read_history(engine, schema="nowhere")


def test_policies_come_with_it(database: Database, engine: Engine) -> None:
    """Limits and weights of the channels are those of the moment, as are the settings of the queue."""
    add(database, 3)
    queue = Queue("documents")
    policy = ChannelPolicy(max_concurrency=3, rate="10/s, burst 4", weight=2)
    queue.configure_channel(engine, "customer-1", policy)
    queue.configure(engine, fair_by="cost", max_concurrency=12)
    queue.plans.configure(engine, "gold", ChannelPolicy(weight=2))
    queue.configure_channel(engine, "customer-0", plan="gold")
    found = read_history(engine, queue="documents")
    assert found.settings == {"documents": QueueSettings("cost", 12)} == read_settings(engine)
    assert found.policies_known
    assert found.policies[("documents", "customer-1")] == policy
    assert found.policies == read_policies(engine)
    assert found.plans == {("documents", "customer-0"): "gold"} == read_plans(engine)


def test_a_report_reads_the_history_once(database: Database) -> None:
    """A report with replays reads the history once, after it has counted whether there are too many rows."""
    engine = create_engine(database.url, pool_size=1, max_overflow=0)

    def scans() -> int:
        """Of the history, by this engine and others that have told theirs."""
        with engine.connect() as connection:
            connection.exec_driver_sql("select pg_stat_force_next_flush()")
            connection.commit()
            counted = "select sum(seq_scan + coalesce(idx_scan, 0))::int from pg_stat_user_tables"
            return int(connection.exec_driver_sql(f"{counted} where relname like 'fq_history%%'").scalar_one())

    add(database, 50)
    database.execute("select pg_stat_force_next_flush()")
    before = scans()
    made = report(read_history(engine), scenarios=[Scenario(name="one line", discipline="fifo")], output=None)
    assert [one.name for one in made.replays] == ["as recorded, replayed", "one line"]
    until(lambda: scans() - before >= 2, "they are told")
    assert scans() - before == 2
    engine.dispose()


def test_an_archive_is_read_in_the_process(tmp_path: Path) -> None:
    """Parquet by day gives what the database gives; policies are those that are given."""
    rows = table(nasty(attempts=100))
    folder = tmp_path / "archive" / "day=2026-03-28"
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "history-1-2.parquet")
    found = read_archive(tmp_path / "archive")
    assert measure_table(found.attempts) == measure_table(rows)
    assert not found.policies_known
    assert set(read_archive(tmp_path / "archive", queue="mails").attempts["queue"].to_pylist()) == {"mails"}
    with pytest.raises(HistoryUnreadable, match="there is no archive at"):
        read_archive(tmp_path / "none")
    with pytest.raises(InvalidArgument, match="no time zone"):
        read_archive(tmp_path / "archive", until=NOON.replace(tzinfo=None))


@pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")
def test_the_example_runs(database: Database, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example makes a page of the history of a queue."""
    monkeypatch.chdir(tmp_path)
    add(database, 30)
    names: dict[str, Any] = {"engine": engine}
    (example,) = (one.text for one in blocks(_PAGE) if one.language == "python")
    exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    made = names["made"]
    assert [one.name for one in made.replays] == ["as recorded, replayed", "one line", "half the workers"]
    assert (tmp_path / "fairness.html").is_file()
