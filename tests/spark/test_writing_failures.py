"""Failures during a load: no row is lost, none is enqueued twice, and none is visible before all are."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.embedded import Server, embedded_server
from sqlalchemy_fairqueue.spark.errors import BadOption, PipelineError, StageIncomplete
from sqlalchemy_fairqueue.spark.writing.load import Load
from tests.fixtures.database import Database, install
from tests.fixtures.server import programs
from tests.fixtures.waits import Waits
from tests.spark.conftest import databases_of
from tests.spark.staged_loads import Row, messages, run, stage, stage_batches, stage_by_task, stages, start

ROWS: list[Row] = [("a", "1", None), ("b", "2", None)]
HOLD_KEY = """
select * from fq_enqueue('q', '{a}', '{x}', '{x}', '{null}', '{null}', '{null}', '{null}', '{held}', '{null}')
"""
MERGE_WAITS = "select 1 from pg_stat_activity where application_name like '%merge' and wait_event_type = 'Lock'"
Drive = Callable[[str], "subprocess.Popen[str]"]
DRIVER = """
import os, sys
from tests.fixtures.database import Database, install
from tests.spark import staged_loads
from sqlalchemy import make_url

database = Database(make_url(os.environ["DATABASE"]))
load = staged_loads.start(database)
said = [staged_loads.stage(load, 1, ("a", "1", "held"), ("b", "2", None))]
print("staged", flush=True)
if sys.argv[1] == "before":
    sys.stdin.read()
load._merge(said, None)
print("merged", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def restarted() -> Iterator[tuple[Server, Callable[[], Database]]]:
    """A server to restart, and what makes databases on it."""
    with embedded_server(programs(), durable=True) as server:
        yield server, databases_of(server)


@pytest.fixture
def own(restarted: tuple[Server, Callable[[], Database]]) -> tuple[Server, Database]:
    """That server, and a database of the test's own."""
    server, make = restarted
    return server, make()


@pytest.fixture
def driver(database: Database) -> Iterator[Drive]:
    """A driver in a process of its own that stops where it is told: ``driver("before")`` the merge, or after it."""
    running = []

    def drive(until: str) -> "subprocess.Popen[str]":
        environment = os.environ | {"DATABASE": database.url.render_as_string(hide_password=False)}
        command, pipe = [sys.executable, "-c", DRIVER, until], subprocess.PIPE
        running.append(subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True))
        return running[-1]

    yield drive
    for process in running:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    """The next line of a driver."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: "subprocess.Popen[str]") -> None:
    """SIGKILL, and wait for the end."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_task_that_came_twice_counts_once(database: Database) -> None:
    """A retried or speculative task has staged its rows before: only the attempt that Spark takes is merged."""
    load = start(database)
    stage(load, 1, *ROWS)
    kept = [stage(load, 2, *ROWS), stage(load, 3, ("c", "3", None), partition=1)]
    assert messages(database) == []
    assert load.merge(kept).created == 3
    assert messages(database) == [("a", "1"), ("b", "2"), ("c", "3")]
    assert stages(database) == 0


def test_a_percent_sign_in_the_name_of_a_schema(database: Database) -> None:
    """A load into such a schema is staged and merged, and its stages are dropped."""
    with create_engine(database.url, poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql('create schema "50%% s"')
        install(connection, schema="50% s")
    assert run(database, ("a", "1", None), schema="50% s").created == 1
    assert start(database, schema="50% s").stage is None
    assert stages(database) == 0


def test_a_driver_killed_before_the_merge(database: Database, driver: Drive) -> None:
    """Nothing is enqueued; the job is run again, and drops what was left behind, but no stage of another job."""
    process = driver("before")
    assert said(process) == "staged"
    kill(process)
    assert (messages(database), stages(database)) == ([], 1)
    others = [start(database, "another job"), start(database, None)]
    assert run(database, *ROWS).merged
    assert (len(messages(database)), stages(database)) == (2, 2)
    for other in others:
        assert other.merge([stage(other, 1, *ROWS)]).merged
    assert stages(database) == 0


def test_a_driver_killed_after_the_merge(database: Database, driver: Drive) -> None:
    """All is enqueued; the job that is run again finds that out before its tasks copy anything, and cleans up."""
    process = driver("after")
    assert [said(process), said(process)] == ["staged", "merged"]
    kill(process)
    assert stages(database) == 1
    load = start(database)
    assert (load.stage, stages(database)) == (None, 0)
    result = load.merge([stage(load, 1, *ROWS)])
    assert (result.merged, result.created) == (False, 2)
    assert len(messages(database)) == 2


@pytest.mark.parametrize("until", ["begun", "staged", "merging"])
def test_two_runs_of_a_job_at_once(database: Database, until: str) -> None:
    """The first to merge drops the other's stage; the other, which lives, finds the job merged, wherever it is."""
    other = start(database)
    reports = [stage(other, 1, *ROWS)] if until != "begun" else []
    load = start(database)
    merged = load.merge([stage(load, 1, *ROWS, ("c", "3", None))])
    assert (merged.merged, merged.created, stages(database)) == (True, 3, 0)
    if until != "merging":
        reports.append(stage_by_task(other, 2, *ROWS, partition=1))
        assert reports[-1].superseded
    assert other.merge(reports) == replace(merged, merged=False)
    assert (len(messages(database)), stages(database)) == (3, 0)


def test_a_run_that_copies_keeps_its_stage(database: Database) -> None:
    """The other run of its job does not wait for it; nor does it fail, for the job is merged then."""
    other = start(database)

    def batches() -> Iterator[Sequence[Row]]:
        yield ROWS
        assert run(database, *ROWS).merged
        yield ROWS

    report = stage_batches(other, 1, batches())
    assert (report.messages, stages(database)) == (4, 1)
    assert not other.merge([report]).merged
    assert (len(messages(database)), stages(database)) == (2, 0)


def test_a_micro_batch_drops_stages_of_its_job(database: Database) -> None:
    """The one that merges does; one that was merged before drops none, as the other run may be at the next."""

    def merged(load: Load, batch: int) -> bool:
        return load.merge([replace(stage(load, 1, *ROWS), source="query")], batch).merged

    for load in [start(database, stream=True) for _ in range(2)]:
        stage(load, 1, *ROWS)
    first, later = start(database, stream=True), start(database, stream=True)
    assert merged(first, 7)
    assert stages(database) == 1
    following = start(database, stream=True)
    assert not merged(later, 7)
    assert stages(database) == 1
    assert merged(following, 8)
    assert (len(messages(database)), stages(database)) == (4, 0)


def test_a_driver_killed_in_the_merge(database: Database, driver: Drive, waits: Waits) -> None:
    """The server notices and gives the transaction up: whoever runs the job again does not wait for it for long."""
    rival = create_engine(database.url, poolclass=NullPool)
    with rival.connect() as connection:
        connection.exec_driver_sql(HOLD_KEY)
        process = driver("after")
        assert said(process) == "staged"
        waits.until(MERGE_WAITS)
        kill(process)
        # With the key still held, only the end of the dead driver's transaction lets this go on.
        waits.until(
            "select 1 where not exists (select from pg_stat_activity"
            " where datname = current_database() and application_name like '%merge')"
        )
    assert messages(database) == []
    assert run(database, *ROWS).merged
    assert len(messages(database)) == 2


@pytest.mark.parametrize("path", ["s3a://key:secret@lake/rejects", "dbfs:/rejects"])
def test_rejects_that_could_not_be_written_are_told_before_anything_is_staged(database: Database, path: str) -> None:
    """The value and the schemes that will do; no secret, and nothing is left behind."""
    with pytest.raises(BadOption, match=r"option rejectsPath is '\w+:.*rejects': .* file, s3 \(not s3a\), gs") as error:
        start(database, bad_rows="reject", rejects_path=path)
    assert "secret" not in str(error.value)
    assert stages(database) == 0


def test_rejects_that_cannot_be_tidied_up_hide_no_error(database: Database) -> None:
    """Dropping what was staged goes through, wherever rejects were to go."""
    load = start(database)
    stage(load, 1, *ROWS)
    replace(load, options=replace(load.options, bad_rows="reject", rejects_path="s3a://lake/rejects")).drop()
    assert stages(database) == 0


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_is_restarted_while_a_task_copies(
    own: tuple[Server, Database], mode: Literal["fast", "immediate"]
) -> None:
    """The task fails, and with its retry all is well; a crash takes what others had staged too, and the job fails."""
    server, database = own
    load = start(database)
    first = stage(load, 1, *ROWS)

    def interrupted() -> Iterator[list[Row]]:
        yield [("c", "3", None)]
        server.restart(mode)
        yield [("c", "3", None)] * 10_000

    with pytest.raises(PipelineError, match="cannot stage rows"):
        stage_batches(load, 2, interrupted(), partition=1)
    again = stage(load, 3, ("c", "3", None), partition=1)
    if mode == "fast":
        assert load.merge([first, again]).created == 3
        return
    with pytest.raises(StageIncomplete, match="has 1 of 3 messages"):
        load.merge([first, again])
    assert (messages(database), stages(database)) == ([], 0)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_is_restarted_while_the_driver_merges(
    own: tuple[Server, Database], mode: Literal["fast", "immediate"]
) -> None:
    """The driver tries again: after a clean stop it goes through, after a crash the job fails; nothing is doubled."""
    server, database = own
    load = start(database)
    staged = [stage(load, 1, ("a", "1", "held"), ("b", "2", None))]
    rival = create_engine(database.url, poolclass=NullPool)
    with ThreadPoolExecutor(1) as threads, rival.connect() as connection:
        connection.exec_driver_sql(HOLD_KEY)
        merging = threads.submit(load.merge, staged)
        while not database.value(MERGE_WAITS):
            pass
        database.own.dispose()
        server.restart(mode)
        connection.invalidate()
        if mode == "fast":
            assert merging.result(60).created == 2
        else:
            with pytest.raises(StageIncomplete, match="has 0 of 2 messages"):
                merging.result(60)
    assert len(messages(database)) == (2 if mode == "fast" else 0)


def test_two_jobs_at_once_on_the_same_channels(database: Database) -> None:
    """Both go through, with keys in opposite order, and a key that both have stands once."""
    count = 200
    rows = [(f"c{n % 7}", str(n), str(n)) for n in range(count)]
    one, two = start(database, "one"), start(database, "two")
    staged = [[stage(one, 1, *rows)], [stage(two, 1, *reversed(rows))]]
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(Load.merge, (one, two), staged))
    assert [result.merged for result in results] == [True, True]
    assert sum(result.created for result in results) == sum(result.duplicates for result in results) == count
    assert len(set(messages(database))) == count


def test_workers_drain_while_a_load_merges(database: Database, engine: Engine) -> None:
    """Of the load all or nothing is to be seen; whatever is delivered meanwhile and afterwards comes once."""
    count, business = 2_000, 200
    queue = Queue("q")
    queue.enqueue_many(engine, [Enqueue(channel=f"c{n % 20}", payload=f"business {n}") for n in range(business)])
    load = start(database)
    rows: list[Row] = [(f"c{n % 20}", f"load {n}", None) for n in range(count)]
    staged = [stage(load, part, *rows[part::2], partition=part) for part in (0, 1)]
    seen: set[int] = set()
    delivered: list[str] = []
    there = threading.Event()

    def watch() -> None:
        # None is completed before the first poll that finds some: that poll must find all.
        while not seen - {0}:
            seen.add(
                database.value("select count(*) from fq_message where convert_from(content, 'UTF8') like '\"load%'")
            )
        there.set()

    def drain() -> None:
        while len(delivered) < count + business:
            if deliveries := queue.dequeue(engine, limit=200):
                payloads = [delivery.payload for delivery in deliveries]
                if any(payload.startswith("load") for payload in payloads):
                    there.wait(60)
                queue.complete(engine, deliveries)
                delivered.extend(payloads)

    with ThreadPoolExecutor(2) as threads:
        watching, draining = threads.submit(watch), threads.submit(drain)
        load.merge(staged)
        watching.result(100)
        draining.result(100)
    assert seen <= {0, count}
    assert sorted(delivered) == sorted([f"business {n}" for n in range(business)] + [f"load {n}" for n in range(count)])
