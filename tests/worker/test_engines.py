"""Engines and databases that the application has set up: pools, creators, listeners, isolation, encodings."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, InvalidArgument, Queue, RetryPolicy, Worker, install_fairqueue
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.reporting.history import read_history
from sqlalchemy_fairqueue.worker.duties import Housekeeping
from tests.fixtures.database import Database, MakeDatabase
from tests.fixtures.drivers import async_url, sync_url
from tests.worker.helpers import call, drained, is_empty, retimed, send, until, waiting

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


Creator = Callable[[], Awaitable[Any]]


def _refusing(connect: Creator) -> Creator:
    loop = asyncio.get_running_loop()

    async def create() -> Any:
        if asyncio.get_running_loop() is not loop:
            raise LookupError("the connector is of another loop")
        return await connect()

    return create


def _silent(connect: Creator) -> Creator:
    """In another loop nothing ever happens."""
    loop = asyncio.get_running_loop()

    async def create() -> Any:
        if asyncio.get_running_loop() is not loop:
            await asyncio.Event().wait()
        return await connect()

    return create


def _engine(database: Database, bound: Callable[[Creator], Creator]) -> AsyncEngine:
    url = async_url(database.url)

    async def connect() -> Any:
        if url.drivername.endswith("+asyncpg"):
            import asyncpg  # noqa: PLC0415 - another driver

            return await asyncpg.connect(database.conninfo)
        return await psycopg.AsyncConnection.connect(database.conninfo)

    return create_async_engine(url, async_creator=bound(connect))


async def test_a_creator_of_one_loop_is_told(queue: Queue, engine: Engine, database: Database) -> None:
    """A worker says why it cannot start and which argument helps; with an engine of its own it works."""
    queue.handler()(lambda _: None)
    for bound in (_refusing, _silent):
        single = _engine(database, bound)
        worker = retimed(AsyncWorker(single, queue), connect=1.0)
        said = r"async_creator serves one loop, give AsyncWorker\(worker_engine="
        with pytest.raises(WorkerError, match=said) as caught:
            await worker.start()
        assert caught.value.__cause__ is not None, bound
        send(engine, queue, 1, 2)
        helped = AsyncWorker(single, queue, worker_engine=engine)
        await helped.run(drain=True)
        assert await helped.leftovers() == ()
        await single.dispose()
    helped = AsyncWorker(
        _engine(database, _refusing), queue, worker_engine=create_async_engine(async_url(database.url))
    )
    send(engine, queue, 3)
    await helped.run(drain=True)
    assert database.value("select count(*) from fq_message") == 0


async def test_other_failures_of_a_creator_stay(queue: Queue, database: Database) -> None:
    """An engine that cannot connect anywhere is told by its own error."""

    def nowhere(_: Creator) -> Creator:
        async def create() -> Any:
            raise LookupError("no such instance")

        return create

    queue.handler()(lambda _: None)
    with pytest.raises(LookupError, match="no such instance"):
        await AsyncWorker(_engine(database, nowhere), queue).start()
    with pytest.raises(InvalidArgument, match="worker_engine"):
        AsyncWorker(_engine(database, nowhere), queue, worker_engine="postgresql://")  # type: ignore[arg-type]


_SET = "set search_path to app"
_SET_LOCAL = "set local search_path to app"


def _on_connection(name: str) -> Callable[[Engine], None]:
    def listen(engine: Engine) -> None:
        @event.listens_for(engine, name)
        def set_up(connection: Any, *_: object) -> None:
            cursor = connection.cursor()
            cursor.execute(_SET)
            cursor.close()
            connection.commit()

    return listen


def _on_do_connect(engine: Engine) -> None:
    @event.listens_for(engine, "do_connect")
    def set_up(_: object, __: object, ___: object, arguments: dict[str, Any]) -> None:
        if engine.dialect.driver == "asyncpg":
            arguments["server_settings"] = {"search_path": "app"}
        else:
            arguments["options"] = "-c search_path=app"


def _executing(name: str, statement: str) -> Callable[[Engine], None]:
    def listen(engine: Engine) -> None:
        @event.listens_for(engine, name)
        def set_up(connection: Connection) -> None:
            connection.exec_driver_sql(statement)

    return listen


_OF_THE_POOL = {
    "connect": _on_connection("connect"),
    "checkout": _on_connection("checkout"),
    "do_connect": _on_do_connect,
}
_OF_AN_ENGINE = {
    "engine_connect": _executing("engine_connect", _SET),
    "engine_connect, local": _executing("engine_connect", _SET_LOCAL),
    "begin": _executing("begin", _SET),
    "begin, local": _executing("begin", _SET_LOCAL),
}
_WITH_OPTIONS = [(name, {"stream_results": False}) for name in ("connect", "engine_connect", "begin, local")]


def _handled(name: str) -> Queue:
    queue = Queue(name)
    queue.handler()(lambda _: None)
    return queue


@pytest.mark.parametrize("in_loop", [False, pytest.param(True, marks=pytest.mark.whole)])
async def test_listeners(make_database: MakeDatabase, *, in_loop: bool) -> None:
    """Calls on an engine and a worker's connections work where its sessions do, also if it is one with other options.

    The listeners of an AsyncEngine are those of its sync engine.
    """
    # Two installations, which only the search_path tells apart: in public and in app.
    app = make_database(schema="app")
    with app.own.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
        install_fairqueue(connection, schema="public")
    listeners = _OF_THE_POOL | _OF_AN_ENGINE
    for name, options in [*((name, {}) for name in listeners), *_WITH_OPTIONS]:
        made: Any = create_async_engine(async_url(app.url)) if in_loop else create_engine(sync_url(app.url))
        engine = made.execution_options(**options) if options else made
        # The pool is the first engine's.
        listened = made if name in _OF_THE_POOL else engine
        listeners[name](listened.sync_engine if in_loop else listened)
        queue = _handled(f"{name}, {options}")
        await call(partial(queue.enqueue, engine, channel="a", payload=1))
        later = (await call(partial(queue.enqueue, engine, channel="a", payload=2))).message_id
        assert (await call(queue.cancel, engine, later)).outcome == "cancelled"
        assert app.value("select count(*) from app.fq_message") == 1, queue
        worker: Worker | AsyncWorker = AsyncWorker(engine, queue) if in_loop else Worker(engine, queue)
        await call(partial(worker.run, drain=True))
        assert worker.stats.completed == 1, queue
        if not in_loop:
            assert not install_fairqueue(engine)
        assert app.value("select count(*) from public.fq_lease") == 0, queue
        await call(made.dispose)


_STRICT = {"options": "-c default_transaction_isolation=serializable"}


def test_a_strict_default(queue: Queue, engine: Engine, database: Database, seen: list[object]) -> None:
    """It asks for READ COMMITTED, takes, and what it settles stays settled; so do its chores what they make."""
    strict = create_engine(database.url, connect_args=_STRICT, poolclass=NullPool)
    days = "select count(*) from pg_inherits where inhparent = cast('fq_history' as regclass)"
    before = database.value(days)
    send(engine, queue, *range(10))
    assert drained(strict, queue).stats.completed == len(seen) == 10
    assert is_empty(database)
    Housekeeping(Worker(strict, queue)._options).run()
    assert database.value(days) > before


@pytest.mark.parametrize("option", ["stream_results", "yield_per"])
def test_cursors_of_the_server(queue: Queue, database: Database, option: str) -> None:
    """An engine that asks for cursors of the server, which need a transaction, gets none where a call has none."""
    streaming = create_engine(database.url, execution_options={option: True})
    queue.handler()(lambda _: None)
    queue.enqueue(streaming, channel="a", payload=1)
    assert queue.stats(streaming).ready == 1
    assert len(queue.messages(streaming, channel="a")) == 1
    assert drained(streaming, queue).stats.completed == 1
    streaming.dispose()


def test_a_handler_in_autocommit_writes_nothing(queue: Queue, engine: Engine, database: Database) -> None:
    """The writes of an attempt that fails would stay, and be repeated: the handler's first statement is refused. An
    engine beside that of the session may be in AUTOCOMMIT.
    """
    database.execute("create table written (at timestamptz)")
    automatic = create_engine(database.url, isolation_level="AUTOCOMMIT")

    @queue.handler
    def handle(delivery: Delivery, session: Session) -> None:
        beside = {"bind_arguments": {"bind": automatic}} if delivery.payload else {}
        session.execute(text("select 1" if delivery.payload else "insert into written values (now())"), **beside)

    send(engine, queue, 1)
    assert drained(engine, queue).stats.completed == 1
    send(engine, queue, 0)
    drained(automatic, queue)
    automatic.dispose()
    assert database.value("select count(*) from written") == 0
    assert "is in AUTOCOMMIT" in database.value("select max(error) from fq_message")


@pytest.mark.parametrize("how", ["database", "session"])
def test_a_default_that_changed_after_the_first_connection(queue: Queue, database: Database, how: str) -> None:
    """What SQLAlchemy has read of the server once is not what a worker relies on."""
    engine = create_engine(database.url)
    engine.connect().close()
    if how == "database":
        database.execute(f"alter database \"{database.name}\" set default_transaction_isolation = 'serializable'")
        engine.dispose()
    else:

        @event.listens_for(engine, "connect")
        def set_up(connection: Any, _: object) -> None:
            connection.execute("set session characteristics as transaction isolation level repeatable read")
            connection.commit()

    queue.handler()(lambda _: None)
    queue.enqueue(engine, channel="a", payload=1)
    with Worker(engine, queue) as worker:
        until(lambda: worker.stats.completed == 1, "it is done")
    assert worker.stats.failures == 0
    engine.dispose()


_WORDS = "cannot parse “naïve” → 日本"
_TWICE = RetryPolicy(first=timedelta(), max_attempts=2)


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

    @queue.handler("bad", retry=_TWICE)
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
