"""The plugin of pytest, in test runs of an application."""

import importlib.util
from pathlib import Path

import pytest
from sqlalchemy import URL

from sqlalchemy_fairqueue.embedded import EmbeddedServerError
from sqlalchemy_fairqueue.testing import databases
from tests.fixtures.database import Database
from tests.testing.runs import pytest_said

_TESTS = """
import asyncio
from datetime import timedelta
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session
from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.testing import assert_enqueued, drain

queue = Queue("documents")

@queue.job
def parse(upload: str) -> None: ...

@pytest.mark.parametrize("run", [1, 2])
def test_session(fairqueue_session, fairqueue_clock, run):
    assert fairqueue_session.is_ours
    assert fairqueue_session.get_bind().engine.driver == "psycopg2"
    parse.options(delay=timedelta(days=1)).enqueue(fairqueue_session, channel="a", upload="later")
    fairqueue_session.commit()
    assert_enqueued(fairqueue_session, parse, upload="later", count=1)
    assert drain(fairqueue_session, queue) == []
    fairqueue_clock.advance(timedelta(days=1))
    assert len(drain(fairqueue_session, queue)) == 1

@pytest.mark.parametrize("run", [1, 2])
def test_own_database(fairqueue_engine, fairqueue_worker, run):
    assert fairqueue_engine.driver == "psycopg2"
    with fairqueue_engine.begin() as connection:
        assert connection.execute(text("insert into page default values returning id")).scalar() == 1
    parse.enqueue(fairqueue_engine, channel="a", upload="now")
    assert fairqueue_worker.drain(queue).stats.completed == 1
    assert fairqueue_worker(queue).stats.hung == 0

@pytest.mark.parametrize("run", [1, 2])
def test_async(fairqueue_async_engine, fairqueue_async_worker, fairqueue_clock, run):
    queue, handled, woken = Queue("documents"), [], asyncio.Event()

    @queue.handler
    async def parse(delivery):
        handled.append(delivery.payload)
        woken.set()

    async def working():
        await queue.enqueue(fairqueue_async_engine, channel="a", payload="now")
        await queue.enqueue(fairqueue_async_engine, channel="a", payload="later", delay=timedelta(days=1))
        assert (await fairqueue_async_worker.drain(queue)).stats.completed == 1
        fairqueue_clock.advance(timedelta(days=1))
        woken.clear()
        async with fairqueue_async_worker(queue) as worker:
            await asyncio.wait_for(woken.wait(), 60)
            assert worker.stats.hung == 0

    asyncio.run(working())
    assert handled == ["now", "later"]
    assert fairqueue_async_engine.url.drivername == "postgresql+asyncpg"

def test_groups_and_schedules(fairqueue_engine, fairqueue_worker, fairqueue_clock):
    queue, followed = Queue("documents"), []

    @queue.job
    def count(files: int) -> None:
        followed.append(files)

    @queue.periodic(channel="system", every=timedelta(hours=1))
    def report(delivery):
        followed.append("report")

    with Session(fairqueue_engine) as session, session.begin():
        with queue.group(session, then=count.prepare(channel="a", files=2)) as group:
            group.enqueue(count, channel="a", files=0)
            group.enqueue(count, channel="a", files=1)
    fairqueue_worker.drain(queue)
    assert followed == [0, 1, 2]
    fairqueue_clock.advance(timedelta(hours=1))
    fairqueue_worker.drain(queue)
    assert followed == [0, 1, 2, "report"]

def test_both(fairqueue_session, fairqueue_engine):
    pass
"""
_CONFTEST = """
import os
from pathlib import Path
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session
from sqlalchemy_fairqueue import install_fairqueue

# The databases of this run are named after it.
Path("run").write_text(str(os.getpid()))

@pytest.fixture(scope="session")
def fairqueue_migrate():
    def migrate(engine):
        install_fairqueue(engine)
        with engine.begin() as connection:
            connection.execute(text("create table page (id serial)"))
    return migrate

@pytest.fixture(scope="session")
def fairqueue_driver():
    return "psycopg2"

@pytest.fixture(scope="session")
def fairqueue_async_driver():
    return "asyncpg"

class OurSession(Session):
    is_ours = True

@pytest.fixture(scope="session")
def fairqueue_session_factory():
    return OurSession
"""


def test_the_fixtures(tmp_path: Path, server_url: URL, database: Database) -> None:
    """Each test finds a migrated database without what others left, and nothing is left on the server."""
    pytest.importorskip("asyncpg")
    pytest.importorskip("psycopg2")
    (tmp_path / "test_shop.py").write_text(_TESTS)
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    said = pytest_said(tmp_path, FAIRQUEUE_TEST_SERVER_URL=server_url.render_as_string(hide_password=False))
    assert "7 passed, 1 error" in said, said
    assert "fairqueue_session and fairqueue_engine are on different databases" in said
    run = f"fairqueue_test_{(tmp_path / 'run').read_text()}_"
    assert database.value("select count(*) from pg_database where starts_with(datname, :run)", run=run) == 0


def test_without_programs_it_says_what_tests_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the plugin's extra and variable beside those of the demo."""
    monkeypatch.delenv("FAIRQUEUE_TEST_SERVER_URL", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EmbeddedServerError) as told, databases.server_for_tests():
        pytest.fail("it started")
    assert "for tests [testing], or name a running server in " in str(told.value)
    assert "for tests in FAIRQUEUE_TEST_SERVER_URL" in str(told.value)
