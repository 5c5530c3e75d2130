"""Engines whose connections come from a pool of somebody else's, and go back to it."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, QueuePool, create_engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue, Worker
from sqlalchemy_fairqueue.reporting.history import read_history
from tests.fixtures.database import Database
from tests.worker.helpers import until

_SIZE = 12


@dataclass
class _Pool:
    """A pool, and what is known of its connections between two uses.

    Attributes:
        engine: An engine over it.
        take: Takes a connection.
        give: Gives it back.
        names: What a driver's connection is set to.
    """

    url: str
    take: Callable[[], Any]
    give: Callable[[Any], None]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        self.engine = create_engine(self.url, poolclass=NullPool, creator=self.take)

    def states(self) -> set[tuple[object, ...]]:
        """What all connections are set to, the server's side too."""
        taken = [self.take() for _ in range(_SIZE)]
        found = {self._state(one) for one in taken}
        for one in taken:
            one.rollback()
            self.give(one)
        return found

    def _state(self, connection: Any) -> tuple[object, ...]:
        seen = tuple(getattr(connection, name) for name in self.names)
        cursor = connection.cursor()
        cursor.execute(
            "select array(select pg_listening_channels()), current_setting('lock_timeout'), "
            "current_setting('statement_timeout'), current_setting('application_name'), "
            "current_setting('client_encoding'), current_setting('jit'), current_setting('search_path'), "
            "current_setting('transaction_isolation')"
        )
        return (*seen, *map(str, cursor.fetchone()))


@contextlib.contextmanager
def _psycopg_pool(database: Database, **options: Any) -> Iterator[_Pool]:
    psycopg_pool = pytest.importorskip("psycopg_pool", reason="another pool than SQLAlchemy's")
    with psycopg_pool.ConnectionPool(
        database.conninfo, min_size=_SIZE, max_size=_SIZE, timeout=30, open=True, **options
    ) as pool:
        names = ("autocommit", "read_only", "prepare_threshold", "row_factory", "cursor_factory")
        yield _Pool("postgresql+psycopg://", pool.getconn, pool.putconn, names)


@contextlib.contextmanager
def _psycopg2_pool(database: Database) -> Iterator[_Pool]:
    """A pool of psycopg2's, with connections that go back to it."""
    psycopg2: Any = pytest.importorskip("psycopg2", reason="another driver")
    pools: Any = pytest.importorskip("psycopg2.pool", reason="another driver")

    class Returning(psycopg2.extensions.connection):  # type: ignore[misc]
        pool: Any = None

        def close(self) -> None:
            pool, self.pool = self.pool, None
            if pool is not None:
                pool.putconn(self)
            else:
                super().close()

    pool = pools.ThreadedConnectionPool(1, _SIZE, database.conninfo, connection_factory=Returning)

    def take() -> Any:
        taken = pool.getconn()
        taken.pool = pool
        return taken

    yield _Pool("postgresql+psycopg2://", take, lambda taken: taken.close(), ("autocommit",))
    pool.closeall()


_POOLS: dict[str, Callable[[Database], contextlib.AbstractContextManager[_Pool]]] = {
    "psycopg_pool": partial(_psycopg_pool, close_returns=True),
    "psycopg2": _psycopg2_pool,
}


@pytest.fixture(params=_POOLS)
def pool(request: pytest.FixtureRequest, database: Database) -> Iterator[_Pool]:
    """Each pool in turn."""
    with _POOLS[request.param](database) as made:
        yield made


def test_what_goes_back(pool: _Pool, database: Database, queue: Queue) -> None:
    """Workers, calls and reports give connections back as they were, so that a rollback undoes what it should.

    A pool has as many connections for others after many starts of a worker as before.
    """
    before = pool.states()
    queue.configure(pool.engine, history=True)
    queue.handler()(lambda delivery: delivery.payload)
    queue.enqueue(pool.engine, channel="a", payload=1)
    with Worker(pool.engine, queue) as worker:
        until(lambda: worker.stats.completed == 1, "it is completed")
        assert worker.health().ready
    queue.enqueue(pool.engine, channel="a", payload=2)
    [delivery] = queue.dequeue(pool.engine)
    queue.release(pool.engine, delivery)
    if pool.engine.dialect.driver == "psycopg":
        assert read_history(pool.engine).attempts.num_rows
    assert pool.states() == before
    database.execute("create table work (id bigint)")
    for _ in range(_SIZE):
        with Session(pool.engine) as session:
            session.execute(text("insert into work values (1)"))
            session.rollback()
    assert database.value("select count(*) from work") == 0
    for _ in range(4):
        with Worker(pool.engine, queue, grace=timedelta()):
            pass
    pool.states()


class _Object:
    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def __call__(self) -> Any:
        return self._connect()


_WRAPS: list[Callable[[Any], Callable[..., Any]]] = [
    lambda connect: functools.wraps(connect)(lambda *given, **named: connect(*given, **named)),  # noqa: PLW0108 - as decorators do
    lambda connect: lambda connection_record: connect(),  # noqa: ARG005 - by its name SQLAlchemy hands it on
    _Object,
    partial,
]


def test_wrapped_creators(database: Database, queue: Queue) -> None:
    """A worker's own connections come from the engine's creator, however it is wrapped; its URL leads nowhere."""
    queue.handler()(lambda delivery: delivery.payload)
    for number, wrap in enumerate(_WRAPS):
        creator = wrap(lambda: psycopg.connect(database.conninfo))
        given: dict[str, Any] = {"pool": QueuePool(creator)} if number % 2 else {"creator": creator}
        engine = create_engine("postgresql+psycopg://nowhere.invalid/", **given)
        queue.enqueue(engine, channel="a", payload=1)
        with Worker(engine, queue, concurrency=1) as worker:
            until(lambda worker=worker: worker.stats.completed == 1, "it is completed")  # type: ignore[misc]
            assert worker.health().ready
        engine.dispose()
