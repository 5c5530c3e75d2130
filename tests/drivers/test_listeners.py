"""Connections that listen: what the worker's listener relies on."""

import os
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from sqlalchemy_fairqueue.database.drivers import Listener
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import AsyncFace, Face
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE

_LONG = PATIENCE.total_seconds()


def _connection(face: Face) -> DedicatedConnection:
    maker = AsyncWorker if isinstance(face, AsyncFace) else Worker
    return DedicatedConnection(maker(face.engine, Queue("documents"))._options)


@pytest.fixture
def connection(face: Face) -> Iterator[DedicatedConnection]:
    """A dedicated connection of a worker."""
    made = _connection(face)
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
    connections = [_connection(one) for one in (face, make_face(face.url), make_face(make_database().url))]
    first, same, other = [one.database_key() for one in connections]
    for one in connections:
        one.close()
    assert first == same != other
