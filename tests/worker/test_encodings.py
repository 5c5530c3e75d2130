"""Databases and connections that have no bytes for every character."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine, event

from sqlalchemy_fairqueue import Delivery, Queue, RetryPolicy, Worker
from tests.fixtures.database import Database, MakeDatabase
from tests.worker.helpers import is_empty, send, until

_WORDS = "cannot parse “naïve” → 日本"
_AT_ONCE = RetryPolicy(first=timedelta(), max_attempts=2)


@pytest.fixture(params=["database", "connection", "database, not the connection"])
def latin(request: pytest.FixtureRequest, make_database: MakeDatabase) -> Database:
    """A database where latin letters alone can be kept, or sent, or both."""
    where = request.param
    made = make_database(encoding=None if where == "connection" else "LATIN1")
    if where == "connection":
        made.execute(f"alter database \"{made.name}\" set client_encoding = 'LATIN1'")
    elif where != "database":
        made.execute(f"alter database \"{made.name}\" set client_encoding = 'UTF8'")
    return made


@pytest.fixture
def latin_engine(latin: Database) -> Engine:
    """An engine to it."""
    return create_engine(latin.url)


def test_many_such_errors_go_together(latin: Database, latin_engine: Engine) -> None:
    """They are sent once more, all at once: no connection breaks, and no message goes alone."""
    queue = Queue("documents")

    @queue.handler(retry=RetryPolicy(max_attempts=1))
    def bad(_: Delivery) -> None:
        raise ValueError(_WORDS)

    connections: list[object] = []
    event.listen(latin_engine, "do_connect", lambda *_: connections.append(None))
    send(latin_engine, queue, *range(300))
    with Worker(latin_engine, queue) as worker:
        until(lambda: is_empty(latin), "all are dead letters")
    assert worker.stats.buried == 300
    assert worker.stats.flushes < 100
    assert len(connections) < 20
    latin_engine.dispose()


def test_an_error_that_cannot_be_kept_as_it_is(latin: Database, latin_engine: Engine) -> None:
    """It is kept in ASCII, its attempts count, and whatever else the worker has is settled."""
    queue = Queue("documents")

    @queue.handler("bad", retry=_AT_ONCE)
    def bad(_: Delivery) -> None:
        raise ValueError(_WORDS)

    queue.handler("good")(lambda _: None)
    with Worker(latin_engine, queue) as worker:
        send(latin_engine, queue, 1, kind="bad")
        send(latin_engine, queue, *range(20), kind="good")
        until(lambda: is_empty(latin), "all have ended")
    assert (worker.stats.completed, worker.stats.retried, worker.stats.buried) == (20, 1, 1)
    assert (worker.stats.failures, worker.stats.released) == (0, 0)
    [letter] = latin.rows("select error, attempts from fq_dead_letter")
    assert r"cannot parse \u201cna" in letter.error
    assert r"ve\u201d \u2192 \u65e5\u672c" in letter.error
    assert letter.attempts == 2
    latin_engine.dispose()


def test_a_queue_whose_name_is_no_ascii_is_woken(latin: Database, latin_engine: Engine) -> None:
    """A notification is understood whatever encoding the connection has."""
    queue = Queue("café")
    queue.handler()(lambda _: None)
    with Worker(latin_engine, queue, poll_interval=timedelta(hours=1)) as worker:
        until(lambda: latin.value("select count(*) from fq_lease where waiting_until > fq_now()") == 1, "it waits")
        send(latin_engine, queue, 1)
        until(lambda: is_empty(latin), "it is done")
    assert worker.stats.woken > 0
    latin_engine.dispose()
