"""Calls that pass by SQLAlchemy, where nobody watches, do as those that it sends."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from sqlalchemy_fairqueue import DuplicateMessage, LeaseLost, Queue
from sqlalchemy_fairqueue.database.drivers import NumberedStatement
from sqlalchemy_fairqueue.database.drivers import psycopg as ours
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import PREPARED, Face
from tests.fixtures.database import Database
from tests.fixtures.listeners import listening
from tests.unit_of_work.business import channels
from tests.worker.helpers import until

ABOUT = ("psycopg", "psycopg async")

psycopg_only = pytest.mark.parametrize("make_face", ["psycopg", "psycopg async"], indirect=True)


def _cycle(face: Face, queue: Queue, number: int) -> tuple[Any, ...]:
    """One message by calls on the engine, enqueued by a session every other time."""
    channel = f"ü{number}"
    if number % 2:
        face.run(lambda session: queue.enqueue(session, channel=channel, payload={"n": number}, headers={"é": 1}))
    else:
        face.call(queue, "enqueue", channel=channel, payload={"n": number}, headers={"é": 1})
    [delivery] = face.call(queue, "dequeue")
    face.call(queue, "extend", delivery)
    face.call(queue, "complete", delivery)
    with pytest.raises(LeaseLost):
        face.call(queue, "complete", delivery)
    return delivery.channel, delivery.payload, delivery.headers, delivery.attempt


@pytest.mark.parametrize("watched", [False, True])
def test_calls(face: Face, queue: Queue, database: Database, *, watched: bool) -> None:
    """The answers are the same, before and after a statement is prepared, with and without a listener."""
    seen: list[str] = []
    if watched:
        event.listen(face.sync_engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    found = [_cycle(face, queue, number) for number in range(2 * PREPARED)]
    assert found == [(f"ü{number}", {"n": number}, {"é": 1}, 1) for number in range(2 * PREPARED)]
    assert channels(database) == []
    if watched:
        assert sum("fq_dequeue" in statement for statement in seen) == 2 * PREPARED
        assert sum("fq_complete" in statement for statement in seen) >= 2 * PREPARED


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What has sent statements past psycopg's cursors."""
    used: set[str] = set()

    def counted(name: str, own: Callable[..., Any], *given: Any, **more: Any) -> Any:
        used.add(name)
        return own(*given, **more)

    for name in ("executed", "pipelined"):
        monkeypatch.setattr(ours, name, partial(counted, name, getattr(ours, name)))
    return used


@pytest.fixture
def warm(single: Face, queue: Queue) -> Face:
    """The driver with a single connection that has prepared what it sends."""
    for number in range(2 * PREPARED):
        _cycle(single, queue, number)
    return single


Watch = Callable[[Face, list[str]], AbstractContextManager[object]]


def _listener_of_all_engines(_: Face, seen: list[str]) -> AbstractContextManager[None]:
    return listening("before_cursor_execute", lambda *given: seen.append(given[2]))


def _listener_of_the_dialect(face: Face, seen: list[str]) -> AbstractContextManager[None]:
    event.listen(face.sync_engine, "do_execute", lambda *given: seen.append(given[1]))
    return nullcontext()


@contextmanager
def _execute_of_the_dialect(face: Face, seen: list[str]) -> Iterator[None]:
    dialect: Any = face.sync_engine.dialect
    own = dialect.do_execute

    def execute(*given: Any) -> None:
        seen.append(given[1])
        own(*given)

    dialect.do_execute = execute
    yield
    del dialect.do_execute


@contextmanager
def _execute_of_cursors(face: Face, seen: list[str]) -> Iterator[None]:
    psycopg = pytest.importorskip("psycopg")

    kind: Any = psycopg.AsyncCursor if face.sync_engine.dialect.is_async else psycopg.Cursor

    @wraps(kind.execute)
    def execute(cursor: Any, query: Any, *given: Any, **more: Any) -> Any:
        seen.append(query)
        return own(cursor, query, *given, **more)

    own = kind.execute
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "execute", execute)
        yield


@psycopg_only
def test_who_watches_sees_all(warm: Face, queue: Queue, used: set[str]) -> None:
    """Who begins to watch sees each statement from then on, and in their order; else they go to libpq: the installed
    psycopg keeps prepared statements where they are looked for.
    """
    # The listener of an engine stays.
    watches: list[Watch] = [
        _listener_of_all_engines, _execute_of_the_dialect, _execute_of_cursors, _listener_of_the_dialect,
    ]  # fmt: skip
    for watch in watches:
        used.clear()
        for number in range(2):
            _cycle(warm, queue, number)
        assert used == {"executed", "pipelined"}
        used.clear()
        seen: list[str] = []
        with watch(warm, seen):
            for number in range(2):
                _cycle(warm, queue, number)
        assert used == set()
        found = [re.search(r"fq_(?:enqueue|dequeue|heartbeat|complete)", statement) for statement in seen]
        own = [one[0] for one in found if one]
        assert own == ["fq_enqueue", "fq_dequeue", "fq_heartbeat", "fq_complete", "fq_complete"] * 2


@psycopg_only
@pytest.mark.parametrize("arguments", [{"prepare_threshold": None}, {"client_encoding": "latin1"}])
def test_connections_for_cursors_only(
    make_face: MakeFace, face: Face, queue: Queue, used: set[str], arguments: dict[str, Any]
) -> None:
    """Without prepared statements, as behind a pooler, or in another encoding, psycopg's cursors send everything."""
    single = make_face(face.url, pool_size=1, max_overflow=0, connect_args=arguments)
    for number in range(2 * PREPARED):
        assert _cycle(single, queue, number)[0] == f"ü{number}"
    assert used == set()


@psycopg_only
def test_a_listening_connection(warm: Face, queue: Queue, database: Database) -> None:
    """Notifications that come with the answer of a call reach the application's handler."""
    heard: list[str] = []

    def listen(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.add_notify_handler(lambda notification: heard.append(notification.payload))
        connection.execute(text("listen probe"))

    warm.on_connection(listen)
    database.execute("select pg_notify('probe', 'one')")
    until(lambda: warm.call(queue, "dequeue") or heard, "the notification comes with an answer")
    assert heard == ["one"]


def test_errors(single: Face, queue: Queue, database: Database) -> None:
    """The server's refusals raise SQLAlchemy's errors and ours, and the connection goes on."""
    database.execute("alter table fq_message add constraint odd check (kind <> 'odd')")
    held = single.call(queue, "enqueue", channel="a", payload=1, key="k").message_id
    for _ in range(PREPARED):
        with pytest.raises(IntegrityError, match="odd") as caught:
            single.call(queue, "enqueue", channel="a", payload=1, kind="odd")
        assert "fq_enqueue" in (caught.value.statement or "")
        assert not caught.value.connection_invalidated
        with pytest.raises(DuplicateMessage) as duplicate:
            single.call(queue, "enqueue", channel="a", payload=1, key="k", on_duplicate="raise")
        assert duplicate.value.message_id == held
    assert channels(database) == ["a"]


def test_a_connection_that_the_server_ended(warm: Face, queue: Queue, database: Database) -> None:
    """It is let go with SQLAlchemy's error, and the next call has another."""
    for verb, given in (("dequeue", {}), ("enqueue", {"channel": "a", "payload": 1})):
        own = warm.run(lambda session: session.scalar(text("select pg_backend_pid()")))
        database.execute("select pg_terminate_backend(:pid, 10000)", pid=own)
        with pytest.raises(DBAPIError) as caught:
            warm.call(queue, verb, **given)
        assert caught.value.connection_invalidated
        warm.call(queue, "enqueue", channel="b", payload=1)
    assert channels(database) == ["b", "b"]


@psycopg_only
def test_large_contents(single: Face, queue: Queue) -> None:
    """Megabytes travel with the COMMIT, alone and prepared."""
    for _ in range(PREPARED):
        single.run(lambda session: queue.enqueue(session, channel="a", payload="x"))
    single.run(lambda session: queue.enqueue(session, channel="a", payload="x" * 4_000_000))
    longest = text("select max(length(content)) from fq_message")
    assert single.run(lambda session: session.scalar(longest)) == 4_000_002


def test_begin(database: Database) -> None:
    """A transaction begins as psycopg begins it."""
    pytest.importorskip("psycopg")
    engine = create_engine(database.url.set(drivername="postgresql+psycopg"))
    for level, read_only in product((None, "REPEATABLE READ", "SERIALIZABLE"), (None, False, True)):
        options: dict[str, Any] = {"isolation_level": level, "postgresql_readonly": read_only}
        with engine.connect() as connection:
            isolated = connection.execution_options(**{name: one for name, one in options.items() if one is not None})
            driver: Any = isolated.connection.driver_connection
            begin = driver._get_tx_start_command().lower()
            # A BEGIN without settings is left out, and so is its COMMIT.
            assert ours.bounds_of(driver) == (((), ()) if begin == b"begin" else ((begin,), (b"commit",)))
            isolated.execute(text("select 1"))
            assert ours.bounds_of(driver) == ((), (b"commit",))
    engine.dispose()


def test_values_without_a_text() -> None:
    """A text that libpq would cut, and a value of a type of others, are left to psycopg."""
    statement = NumberedStatement("select", b"select")
    found = ours.given({}, statement, [None, True, 7, "ä", b"b"])
    assert found is not None
    assert found.for_cursor() == [None, "true", "7", "ä", b"b"]
    assert ours.given({}, statement, ["a\x00b"]) is None
    assert ours.given({}, statement, [1.5]) is None
