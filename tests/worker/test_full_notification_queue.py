"""The server's notification queue is full: commits go through, and workers poll."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue import Queue, Worker
from sqlalchemy_fairqueue.embedded import Server
from tests.fixtures.database import Database, install
from tests.fixtures.server import programs
from tests.worker.helpers import retimed, send, until

pytestmark = pytest.mark.skipif(
    int(programs().version.partition(".")[0]) < 17,
    reason="before PostgreSQL 17 the notification queue has 8 GB, which no test fills",
)
_WAITING = "select id || ':' from fq_lease where waiting_until > fq_now()"


@pytest.fixture
def own(private_server: Callable[..., Server]) -> Iterator[Engine]:
    """An engine to a server with room for few notifications."""
    url = private_server(settings={"max_notify_queue_pages": "64"}).url()
    own = create_engine(url)
    with own.begin() as connection:
        install(connection)
    yield own
    own.dispose()


def _fill(database: Database) -> None:
    with psycopg.connect(database.conninfo, autocommit=True) as filler:
        for _ in range(10_000):
            try:
                filler.execute("select pg_notify('other', repeat('x', 7000))")
            except psycopg.errors.ProgramLimitExceeded:
                return
    pytest.fail("the queue was never full")


def test_it_fails_no_commit(queue: Queue, own: Engine, seen: list[object]) -> None:
    """Producers commit, the worker polls meanwhile; when there is room again it waits and is notified."""
    small = Database(own.url)
    worker = retimed(Worker(own, queue, housekeeping=False), silence=0.1)
    with worker, psycopg.connect(small.conninfo) as open_listener:
        until(lambda: small.value(_WAITING), "it waits")
        open_listener.execute("listen other")
        open_listener.commit()
        open_listener.execute("select 1")
        _fill(small)
        assert not small.value("select fq_wake('documents')")
        assert worker._runtime is not None
        [served] = worker._runtime.queues
        until(lambda: served.polls.interval <= 1, "it has noticed")
        for number in range(3):
            send(own, queue, number)
        until(lambda: sorted(seen, key=str) == [0, 1, 2], "all are found")
        open_listener.rollback()
        open_listener.execute("unlisten *")
        open_listener.commit()

        until(lambda: served.polls.waiting_until, "it waits again")
        with psycopg.connect(small.conninfo, autocommit=True) as ours:
            ours.execute("listen fairqueue")
            woken = worker.stats.woken
            send(own, queue, 3)
            [notification] = ours.notifies(timeout=60, stop_after=1)
        assert notification.payload.startswith(small.value(_WAITING))
        until(lambda: worker.stats.woken > woken, "it is notified")
        until(lambda: 3 in seen, "it takes the message")
    small.own.dispose()
