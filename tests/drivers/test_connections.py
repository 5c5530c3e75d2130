"""Connections of workers and of who reports: what listeners rely on; those that the server ended while they were idle
are replaced before anybody hears of it.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import text

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from sqlalchemy_fairqueue.dashboard.reading import Reading
from sqlalchemy_fairqueue.database.drivers import Listener
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.runtime import HealthCheck
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import AsyncFace, Face
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.fixtures.waits import Waits

_LONG = PATIENCE.total_seconds()


def _worker(face: Face) -> Worker | AsyncWorker:
    kind = AsyncWorker if isinstance(face, AsyncFace) else Worker
    return kind(face.engine, Queue("documents"), listen=False, housekeeping=False)


@pytest.fixture
def connection(face: Face) -> Iterator[DedicatedConnection]:
    """A dedicated connection of a worker."""
    made = DedicatedConnection(_worker(face)._options)
    yield made
    made.close()


@pytest.fixture
def listener(connection: DedicatedConnection) -> Listener:
    """A listener that listens."""
    made = connection.listener()
    made.listen("the listener")
    return made


@pytest.fixture
def stop() -> Iterator[tuple[int, Callable[[], object]]]:
    """A file that a wait looks at, and what makes it ready."""
    reader, writer = os.pipe()
    yield reader, lambda: os.write(writer, b"x")
    os.close(reader)
    os.close(writer)


Stop = tuple[int, Callable[[], object]]


def _next(listener: Listener, stop: Stop) -> list[str]:
    deadline = monotonic() + _LONG
    while not (found := listener.received()):
        assert monotonic() < deadline
        listener.wait(stop[0], _LONG)
    return found


def test_notifications(listener: Listener, database: Database, stop: Stop) -> None:
    """Each payload is received once, in order, whatever characters it has, and none of another channel."""
    payloads = ["1:documents", "2:日本", "3:it's"]
    database.execute("select pg_notify('other', 'x')")
    for payload in payloads:
        database.execute("select pg_notify('fairqueue', :payload)", payload=payload)
    found: list[str] = []
    while len(found) < len(payloads):
        found += _next(listener, stop)
    assert found == payloads
    assert listener.received() == []
    # One that is read along with an answer is not lost.
    database.execute("select pg_notify('fairqueue', '1:documents')")
    assert listener.commits_notify() is True
    assert _next(listener, stop) == ["1:documents"]


def test_whether_it_listens(listener: Listener) -> None:
    """A connection that is told to listen does, under its name; one that a pooler has swapped does not."""
    assert listener.commits_notify() is True
    assert listener._execute("select cast(current_setting('application_name') as text)") == ["the listener"]
    listener._execute("unlisten *")
    assert listener.commits_notify() is None


def test_a_server_that_takes_no_writes(listener: Listener) -> None:
    """On a primary that was made read-only for a failover nobody notifies: the connection counts as broken."""
    listener._execute("set default_transaction_read_only = on")
    with pytest.raises(ConnectionError, match="no writes"):
        listener.commits_notify()


def test_a_wait_ends_when_it_is_told_to(listener: Listener, stop: Stop) -> None:
    """A byte through the pipe ends a wait, or its time."""
    reader, tell = stop
    for seconds in 0.0, 0.01, 0.0:
        listener.wait(reader, seconds)
    began = monotonic()
    timer = threading.Timer(0.05, tell)
    timer.start()
    listener.wait(reader, 2 * _LONG)
    timer.join()
    assert monotonic() - began < _LONG
    assert listener.received() == []


def test_a_connection_that_breaks(listener: Listener, database: Database, stop: Stop) -> None:
    """A wait, or the next question, raises when the server has gone."""
    database.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'the listener'"
    )

    def go_on() -> None:
        for _ in range(10):
            listener.wait(stop[0], 1.0)
            listener.commits_notify()

    with pytest.raises(Exception, match=r"(?i)connection|closed|terminat"):
        go_on()


def test_a_call_that_is_cut(connection: DedicatedConnection, listener: Listener) -> None:
    """The watch over the socket ends a call that nobody answers."""
    with pytest.raises(Exception, match=r"(?i)connection|closed|terminat"), connection.calling(0.05):
        listener._execute("select cast(pg_sleep(600) as text)")


def test_the_same_database(make_face: MakeFace, face: Face, make_database: Callable[[], Database]) -> None:
    """Connections to one database have one key, and those to another one another."""
    connections = [
        DedicatedConnection(_worker(one)._options)
        for one in (face, make_face(face.url), make_face(make_database().url))
    ]
    first, same, other = [one.database_key() for one in connections]
    for one in connections:
        one.close()
    assert first == same != other


_END = (
    "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
    " where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
)


def _pid(connection: Any) -> Any:
    return connection.scalar(text("select pg_backend_pid()"))


@pytest.mark.parametrize("how", ["an administrator", "idle_session_timeout"])
def test_a_dedicated_connection(connection: DedicatedConnection, database: Database, waits: Waits, how: str) -> None:
    """Each connection of a worker is there for the next call, which costs no second one while it is alive."""
    for number in range(1, 4):
        pid = connection.run(_pid)
        assert connection.run(_pid) == pid
        assert connection.made == number
        if how == "an administrator":
            database.execute("select pg_terminate_backend(:pid, 10000)", pid=pid)
        else:
            connection.run(lambda one: one.execute(text("set idle_session_timeout = 50")))
            waits.until("select 1 where not exists (select from pg_stat_activity where pid = :pid)", pid=pid)


def test_a_listener(connection: DedicatedConnection) -> None:
    """A connection that listens is idle on purpose, and no such timeout ends it."""
    connection.run(lambda one: one.execute(text("set idle_session_timeout = 50")))
    listener = connection.listener()
    listener.listen("the listener")
    assert listener._execute("show idle_session_timeout") == ["0"]


def _asked(face: Face, find: Callable[[], Any]) -> bool:
    async def asking() -> bool:
        return getattr(await find(), "problem", None) is None

    run = face.runner.run if isinstance(face, AsyncFace) else asyncio.run
    return run(asking())


def _probes(face: Face, queue: Queue) -> Iterator[Callable[[], bool]]:
    """Whether the health of a worker, figures, the dashboard and findings are there, each by connections of its own."""
    check = HealthCheck(_worker(face)._options)
    yield lambda: not check.unanswered()
    check.close()
    for number in range(3):
        reading = Reading(face.engine, [queue], schema=None, keep=timedelta())
        ways = (reading.figures.aget, partial(reading.read, _pid), partial(asyncio.to_thread, reading._examine))
        yield partial(_asked, face, ways[number])


def test_who_reports(face: Face, queue: Queue, database: Database) -> None:
    """The health of a worker, the figures of metrics and the dashboard are there though all connections were ended."""
    for ask in _probes(face, queue):
        for _ in range(2):
            assert ask()
            database.execute(_END)
        assert ask()
