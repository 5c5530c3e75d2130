"""A COMMIT with queue work that is interrupted, or whose connection the server ends, says so as one without does."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import Face
from tests.drivers.test_alone import psycopg_only
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.unit_of_work.business import channels

_WAYS = ("first use", "prepared", "watched")
_CALLS = 8
"""psycopg prepares a statement after five."""


class _TimeLimit(Exception):
    pass


@pytest.fixture(params=_WAYS)
def single(request: pytest.FixtureRequest, make_face: MakeFace, face: Face, queue: Queue, database: Database) -> Face:
    """A driver with one connection that sends the work in each of its ways, and a table whose COMMIT can wait."""
    database.execute("create table slow (id integer primary key deferrable initially deferred)")
    found = make_face(face.url, pool_size=1, max_overflow=0)
    if request.param == "watched":
        event.listen(found.sync_engine, "before_cursor_execute", lambda *_: None)
    if request.param == "prepared":
        for _ in range(_CALLS):
            found.run(lambda session: queue.enqueue(session, channel="first", payload=1))
    return found


def _commit_slowly(queue: Queue, pids: list[int], session: Session) -> None:
    pids.append(session.scalar(text("select pg_backend_pid()")) or 0)
    session.execute(text("insert into slow values (1)"))
    queue.enqueue(session, channel="lost", payload=1)


@contextmanager
def _while_it_waits(database: Database, waits: Waits, pids: list[int], act: Callable[[int], Any]) -> Iterator[None]:
    """Let COMMITs of the table wait, and act once one does."""

    def acting() -> None:
        waits.until("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
        act(pids[0])

    with ThreadPoolExecutor(1) as pool, database.own.connect() as other:
        other.execution_options(isolation_level="READ COMMITTED").execute(text("insert into slow values (1)"))
        acted = pool.submit(acting)
        yield
        acted.result()
        other.rollback()


def _goes_on(face: Face, queue: Queue, database: Database) -> None:
    face.run(lambda session: queue.enqueue(session, channel="next", payload=1))
    face.call(queue, "enqueue", channel="next", payload=1)
    assert {*channels(database)} - {"first"} == {"next"}


@contextmanager
def _handling(raised: type[BaseException]) -> Iterator[None]:
    def handler(*_: object) -> None:
        raise raised

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("make_face", ["psycopg"], indirect=True)
@pytest.mark.parametrize("raised", [_TimeLimit, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("single", "where"),
    # SQLAlchemy itself sends a call that is watched.
    [(way, "commit") for way in _WAYS] + [("first use", "call"), ("prepared", "call")],
    indirect=["single"],
)
def test_the_handler_of_a_signal(  # noqa: PLR0917 - fixtures
    single: Face, queue: Queue, database: Database, waits: Waits, raised: type[BaseException], where: str
) -> None:
    """What it raises while the server is at work comes out, the transaction is rolled back, and the engine goes on."""
    pids: list[int] = [0]

    def interrupt(_: int) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    with _handling(raised):
        if where == "call":
            # It waits for the one that has the key.
            with Session(database.own.execution_options(isolation_level="READ COMMITTED")) as other:
                queue.enqueue(other.connection(), channel="lost", payload=1, key="k")
                with _while_it_waits(database, waits, pids, interrupt), pytest.raises(raised):
                    single.call(queue, "enqueue", channel="lost", payload=1, key="k")
        else:
            with _while_it_waits(database, waits, pids, interrupt), pytest.raises(raised):
                single.run(lambda session: _commit_slowly(queue, pids, session))
    _goes_on(single, queue, database)


@pytest.mark.parametrize("make_face", ["psycopg async"], indirect=True)
@pytest.mark.parametrize("raised", [asyncio.CancelledError, TimeoutError])
def test_the_cancel_of_a_task(
    single: Any, queue: Queue, database: Database, waits: Waits, raised: type[BaseException]
) -> None:
    """A task that is cancelled, or whose time is over, while COMMIT waits ends so, and the engine goes on."""
    pids: list[int] = []
    tasks: list[asyncio.Task[Any]] = []
    loop = single.runner.get_loop()
    scope: list[asyncio.Timeout] = []

    async def committing() -> None:
        tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # there is one
        async with asyncio.timeout(None) as timeout:
            scope.append(timeout)
            await single.arun(lambda session: _commit_slowly(queue, pids, session))

    def interrupt(_: int) -> None:
        over = tasks[0].cancel if raised is asyncio.CancelledError else lambda: scope[0].reschedule(0)
        loop.call_soon_threadsafe(over)

    with _while_it_waits(database, waits, pids, interrupt), pytest.raises(raised):
        single.runner.run(committing())
    _goes_on(single, queue, database)


_END = "select pg_terminate_backend(:pid, 10000)"


@psycopg_only
@pytest.mark.parametrize(
    ("state", "setting"),
    [
        ("57P01", None),
        ("25P03", "idle_in_transaction_session_timeout"),
        ("25P04", "transaction_timeout"),
    ],
)
def test_a_connection_that_the_server_ends_before(  # noqa: PLR0917 - fixtures
    single: Face, queue: Queue, database: Database, waits: Waits, state: str, setting: str | None
) -> None:
    """The commit that comes after the end says why it came."""

    def committing(session: Session) -> DBAPIError:
        pids: list[int] = []
        _commit_slowly(queue, pids, session)
        if setting is None:
            database.execute(_END, pid=pids[0])
        else:
            session.execute(text(f"set local {setting} = 100"))
            waits.until("select 1 where not exists (select from pg_stat_activity where pid = :pid)", pid=pids[0])
        with pytest.raises(DBAPIError) as caught:
            session.commit()
        session.rollback()
        return caught.value

    error = single.run(committing)
    assert (sqlstate_of(error), error.connection_invalidated) == (state, True)
    _goes_on(single, queue, database)


@psycopg_only
def test_a_connection_that_the_server_ends_meanwhile(
    single: Face, queue: Queue, database: Database, waits: Waits
) -> None:
    """The commit that waits then says why it came."""
    pids: list[int] = []

    def committing(session: Session) -> DBAPIError:
        _commit_slowly(queue, pids, session)
        with pytest.raises(DBAPIError) as caught:
            session.commit()
        session.rollback()
        return caught.value

    with _while_it_waits(database, waits, pids, lambda pid: database.execute(_END, pid=pid)):
        error = single.run(committing)
    assert (sqlstate_of(error), error.connection_invalidated) == ("57P01", True)
    _goes_on(single, queue, database)


@psycopg_only
@pytest.mark.parametrize("state", ["57P01", "57P05"])
def test_an_idle_connection_that_the_server_ends(
    single: Face, queue: Queue, database: Database, waits: Waits, state: str
) -> None:
    """The call on the engine that finds it so says why."""
    timeout = 0 if state == "57P01" else 100
    pid = single.run(lambda session: session.scalar(text("select pg_backend_pid()")))
    single.run(lambda session: session.execute(text(f"set idle_session_timeout = {timeout}")))
    if state == "57P01":
        database.execute(_END, pid=pid)
    waits.until("select 1 where not exists (select from pg_stat_activity where pid = :pid)", pid=pid)
    with pytest.raises(DBAPIError) as caught:
        single.call(queue, "enqueue", channel="lost", payload=1)
    assert (sqlstate_of(caught.value), caught.value.connection_invalidated) == (state, True)
    _goes_on(single, queue, database)
