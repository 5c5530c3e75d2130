"""The step to version 2, which brings schedules: old code beside it, and the way back."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.database import migrations
from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.sql import assert_no_drift, downgrade_statements, upgrade_statements
from tests.alembic.conftest import Project
from tests.fixtures.database import Database
from tests.worker.helpers import until

pytestmark = pytest.mark.installed

MAKE = (
    "select fq_set_schedule('documents', 'a', 'nightly', '0 3 * * *', 'UTC', null, 'last', 0, 'report', '1', null, 20,"
    " null, {in_code})"
)


def change(database: Database, statements: Callable[[int, int, str | None], object], before: int, after: int) -> None:
    """Climb in one transaction."""
    made: object = statements(before, after, None)
    with database.own.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
        for statement in made:  # type: ignore[attr-defined]
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def test_a_downgrade_refuses_schedules_of_calls(database: Database) -> None:
    """Schedules that version 1 cannot keep stop the step and are counted; without them it is made."""
    database.execute(MAKE.format(in_code="false"))
    with pytest.raises(DBAPIError, match="version 1 cannot keep the 1 schedules that were made by calls"):
        change(database, downgrade_statements, 2, 1)
    assert database.value("select fq_version()") == 2
    assert database.value("select fq_remove_schedule('documents', 'a', 'nightly')") is True
    change(database, downgrade_statements, 2, 1)
    assert database.value("select fq_version()") == 1
    assert database.value("select to_regclass('fq_schedule')::text") is None


def test_a_downgrade_drops_schedules_from_code(database: Database) -> None:
    """What workers make again at their start is no reason to refuse."""
    database.execute(MAKE.format(in_code="true"))
    change(database, downgrade_statements, 2, 1)
    change(database, upgrade_statements, 1, 2)
    assert database.value("select count(*) from fq_schedule") == 0
    with database.own.connect() as connection:
        assert_no_drift(connection)


def test_a_downgrade_waits_for_a_transaction_that_schedules(database: Database) -> None:
    """A schedule that is not committed yet counts too."""
    with ThreadPoolExecutor(1) as thread, create_engine(database.url, poolclass=NullPool).connect() as business:
        business.exec_driver_sql(MAKE.format(in_code="false"))
        step = thread.submit(change, database, downgrade_statements, 2, 1)
        tries = "select pid from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
        until(lambda: step.done() or database.value(tries), "the step tries again")
        business.commit()
        with pytest.raises(DBAPIError, match="version 1 cannot keep the 1 schedules"):
            step.result()
    assert database.value("select fq_version()") == 2


def test_old_code_on_the_new_schema(
    project: Project, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that needs version 1 works through the step up and the step back, and loses nothing; the one that
    needs version 2 is refused before the step, and served after it.
    """
    project.migration("one", "op.create_fairqueue(version=1)")
    project.migration("two", "op.upgrade_fairqueue(1, 2)", "op.downgrade_fairqueue(2, 1)", down="one")
    project.point_at(empty_database.url)
    project.run("upgrade", "one")
    early = create_engine(empty_database.url, poolclass=NullPool)
    with pytest.raises(SchemaMismatch, match="needs version 2"):
        Queue("documents").enqueue_now(early, channel="a", payload=1)
    stopped, completed = Event(), [0]

    def old_code(engine: Engine) -> int:
        queue, enqueued = Queue("documents"), 0
        while not stopped.is_set():
            with Session(engine) as session, session.begin():
                queue.enqueue(session, channel="a", payload=1)
            enqueued += 1
            completed[0] += complete(queue, engine)
        return enqueued

    def goes_on() -> None:
        before = completed[0]
        until(lambda: working.done() or completed[0] > before + 20, "old code goes on")
        if working.done():
            working.result()

    engine = create_engine(empty_database.url)
    with monkeypatch.context() as older, ThreadPoolExecutor(1) as thread:
        older.setattr(migrations, "NEEDED_VERSION", 1)
        Queue("documents").stats(engine)
        working = thread.submit(old_code, engine)
        try:
            goes_on()
            project.run("upgrade", "two")
            goes_on()
            newer = create_engine(empty_database.url, poolclass=NullPool)
            with newer.begin() as connection:
                older.setattr(migrations, "NEEDED_VERSION", 2)
                scheduled(connection)
            goes_on()
            empty_database.execute("delete from fq_schedule")
            project.run("downgrade", "one")
            goes_on()
            project.run("upgrade", "two")
            goes_on()
        finally:
            stopped.set()
        enqueued = working.result()
    while done := complete(Queue("documents"), engine):
        completed[0] += done
    assert completed[0] == enqueued
    engine.dispose()
    with empty_database.own.connect() as connection:
        assert_no_drift(connection)


def complete(queue: Queue, engine: Engine) -> int:
    """Take messages and complete them."""
    deliveries = list(queue.dequeue(engine, limit=5))
    queue.complete(engine, deliveries)
    return len(deliveries)


def scheduled(connection: Connection) -> None:
    """What only version 2 can do."""
    assert connection.exec_driver_sql(MAKE.format(in_code="false")).scalar() == "created"
