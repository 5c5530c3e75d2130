"""A COMMIT with queue work, or a call, that is interrupted, or whose connection the server ends, says so as others."""

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
from tests.drivers.faces import PREPARED, Face
from tests.drivers.test_alone import psycopg_only
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.unit_of_work.business import channels

_WAYS = ("first use", "prepared", "watched")


class _TimeLimit(Exception):
    pass


@pytest.fixture(params=_WAYS)
def way(request: pytest.FixtureRequest, single: Face, queue: Queue, database: Database) -> Face:
    """A driver with one connection that sends the work in each of its ways, and a table whose COMMIT can wait."""
    database.execute("create table slow (id integer primary key deferrable initially deferred)")
    if request.param == "watched":
        event.listen(single.sync_engine, "before_cursor_execute", lambda *_: None)
    if request.param == "prepared":
        for _ in range(PREPARED):
            single.run(lambda session: queue.enqueue(session, channel="first", payload=1))
            single.call(queue, "enqueue", channel="first", payload=1)
    return single


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


def _interrupt(number: int) -> Any:
    return lambda _: signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def _holding(database: Database, queue: Queue, key: str) -> Iterator[None]:
    with Session(database.own.execution_options(isolation_level="READ COMMITTED")) as other:
        queue.enqueue(other.connection(), channel="lost", payload=1, key=key)
        yield


@pytest.mark.parametrize("make_face", ["psycopg"], indirect=True)
@pytest.mark.parametrize("raised", [_TimeLimit, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("way", "where"),
    # SQLAlchemy itself sends a call that is watched.
    [(way, "commit") for way in _WAYS] + [("first use", "call"), ("prepared", "call")],
    indirect=["way"],
)
def test_the_handler_of_a_signal(  # noqa: PLR0917 - fixtures
    way: Face, queue: Queue, database: Database, waits: Waits, raised: type[BaseException], where: str
) -> None:
    """What it raises while the server is at work comes out, the transaction is rolled back, and the engine goes on."""
    pids: list[int] = [0]
    interrupting = _while_it_waits(database, waits, pids, _interrupt(signal.SIGUSR1))
    with _handling(raised):
        if where == "call":
            with _holding(database, queue, "k"), interrupting, pytest.raises(raised):
                way.call(queue, "enqueue", channel="lost", payload=1, key="k")
        else:
            with interrupting, pytest.raises(raised):
                way.run(lambda session: _commit_slowly(queue, pids, session))
    _goes_on(way, queue, database)


@pytest.mark.parametrize("make_face", ["psycopg async"], indirect=True)
@pytest.mark.parametrize("way", ["prepared"], indirect=True)
def test_an_interrupt(way: Face, queue: Queue, database: Database, waits: Waits) -> None:
    """Ctrl-C cancels the task of a call while the server waits: nothing is left on the connection, or it is let go."""
    interrupting = _while_it_waits(database, waits, [0], _interrupt(signal.SIGINT))
    with _holding(database, queue, "k"), interrupting, pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        way.call(queue, "enqueue", channel="lost", payload=1, key="k")
    way.call(queue, "enqueue", channel="next", payload=1, key="k")
    _goes_on(way, queue, database)


@pytest.mark.parametrize("make_face", ["psycopg async"], indirect=True)
@pytest.mark.parametrize("raised", [asyncio.CancelledError, TimeoutError])
def test_the_cancel_of_a_task(
    way: Any, queue: Queue, database: Database, waits: Waits, raised: type[BaseException]
) -> None:
    """A task that is cancelled, or whose time is over, while COMMIT waits ends so, and the engine goes on."""
    pids: list[int] = []
    tasks: list[asyncio.Task[Any]] = []
    loop = way.runner.get_loop()
    scope: list[asyncio.Timeout] = []

    async def committing() -> None:
        tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # there is one
        async with asyncio.timeout(None) as timeout:
            scope.append(timeout)
            await way.arun(lambda session: _commit_slowly(queue, pids, session))

    def interrupt(_: int) -> None:
        over = tasks[0].cancel if raised is asyncio.CancelledError else lambda: scope[0].reschedule(0)
        loop.call_soon_threadsafe(over)

    with _while_it_waits(database, waits, pids, interrupt), pytest.raises(raised):
        way.runner.run(committing())
    _goes_on(way, queue, database)


_END = "select pg_terminate_backend(:pid, 10000)"
_GONE = "select 1 where not exists (select from pg_stat_activity where pid = :pid)"


def _ended(way: Face, queue: Queue, pids: list[int], before: Callable[[Session], object] = repr) -> tuple[str, bool]:
    """How a commit that waits fails, after this was done before it."""

    def committing(session: Session) -> DBAPIError:
        _commit_slowly(queue, pids, session)
        before(session)
        with pytest.raises(DBAPIError) as caught:
            session.commit()
        session.rollback()
        return caught.value

    error = way.run(committing)
    return sqlstate_of(error), error.connection_invalidated


@psycopg_only
@pytest.mark.parametrize(
    ("state", "setting"),
    [("57P01", None), ("25P03", "idle_in_transaction_session_timeout"), ("25P04", "transaction_timeout")],
)
def test_a_connection_that_the_server_ends_before(  # noqa: PLR0917 - fixtures
    way: Face, queue: Queue, database: Database, waits: Waits, state: str, setting: str | None
) -> None:
    """The commit that comes after the end says why it came."""
    pids: list[int] = []

    def end(session: Session) -> None:
        if setting is None:
            database.execute(_END, pid=pids[0])
        else:
            session.execute(text(f"set local {setting} = 100"))
            waits.until(_GONE, pid=pids[0])

    assert _ended(way, queue, pids, end) == (state, True)
    _goes_on(way, queue, database)


@psycopg_only
def test_a_connection_that_the_server_ends_meanwhile(way: Face, queue: Queue, database: Database, waits: Waits) -> None:
    """The commit that waits then says why it came."""
    pids: list[int] = []
    with _while_it_waits(database, waits, pids, lambda pid: database.execute(_END, pid=pid)):
        assert _ended(way, queue, pids) == ("57P01", True)
    _goes_on(way, queue, database)


@psycopg_only
@pytest.mark.parametrize("state", ["57P01", "57P05"])
def test_an_idle_connection_that_the_server_ends(
    way: Face, queue: Queue, database: Database, waits: Waits, state: str
) -> None:
    """The call on the engine that finds it so says why."""
    timeout = 0 if state == "57P01" else 100
    pid = way.run(lambda session: session.scalar(text("select pg_backend_pid()")))
    way.run(lambda session: session.execute(text(f"set idle_session_timeout = {timeout}")))
    if state == "57P01":
        database.execute(_END, pid=pid)
    waits.until(_GONE, pid=pid)
    with pytest.raises(DBAPIError) as caught:
        way.call(queue, "enqueue", channel="lost", payload=1)
    assert (sqlstate_of(caught.value), caught.value.connection_invalidated) == (state, True)
    _goes_on(way, queue, database)
