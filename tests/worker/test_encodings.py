"""Databases and connections that have no bytes for every character."""

from datetime import timedelta

import pytest
from sqlalchemy import create_engine, event

from sqlalchemy_fairqueue import Delivery, Queue, RetryPolicy, Worker
from tests.fixtures.database import Database, MakeDatabase
from tests.worker.helpers import is_empty, send, until, waiting

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


def test_an_error_that_cannot_be_kept_as_it_is(latin: Database) -> None:
    """It is kept in ASCII, its attempts count, and all else is settled; many go together, and no connection breaks.

    A notification of a queue whose name is no ASCII is understood whatever encoding the connection has.
    """
    engine, queue = create_engine(latin.url), Queue("café")

    @queue.handler("bad", retry=_AT_ONCE)
    def bad(_: Delivery) -> None:
        raise ValueError(_WORDS)

    queue.handler("good")(lambda _: None)
    connections: list[object] = []
    event.listen(engine, "do_connect", lambda *_: connections.append(None))
    with Worker(engine, queue, poll_interval=timedelta(hours=1)) as worker:
        until(lambda: waiting(latin) == 1, "it waits")
        send(engine, queue, 1, kind="bad")
        send(engine, queue, *range(20), kind="good")
        until(lambda: is_empty(latin), "all have ended")
        stats = worker.stats
        until(lambda: (stats.completed, stats.retried, stats.buried) == (20, 1, 1), "all are counted")
        assert stats.woken > 0
        [letter] = latin.rows("select error, attempts from fq_dead_letter")
        assert r"cannot parse \u201cna" in letter.error
        assert r"ve\u201d \u2192 \u65e5\u672c" in letter.error
        assert letter.attempts == 2
        flushes = stats.flushes
        send(engine, queue, *range(200), kind="bad", max_attempts=1)
        until(lambda: is_empty(latin), "all are dead letters")
    assert (stats.buried, stats.failures, stats.released) == (201, 0, 0)
    assert stats.flushes - flushes < 70
    assert len(connections) < 20
    engine.dispose()
