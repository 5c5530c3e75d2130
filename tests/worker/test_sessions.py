"""Sessions of handlers: the factories that make them, their pools, and commits by the handlers themselves."""

import asyncio
import functools
import warnings
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.errors import HandlerTransactionWarning
from sqlalchemy_fairqueue.worker.executor import TaskExecutor
from tests.fixtures.database import Database
from tests.worker.helpers import AT_ONCE, LATER, auntil, count_effects, drained, is_empty, send, write_effect

pytestmark = pytest.mark.usefixtures("effects")


def _rolls_back(_: Delivery, session: Session) -> None:
    session.rollback()


async def _arolls_back(_: Delivery, session: AsyncSession) -> None:
    await session.rollback()


async def test_a_session_factory_that_makes_none(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """It does not start: each message would lose an attempt, until all are dead letters."""
    other = Queue("documents")
    queue.handler()(_rolls_back)
    other.handler()(_arolls_back)

    def generated() -> Any:
        yield None

    async def made() -> AsyncSession:
        return AsyncSession(async_engine)

    factory: Any
    for factory in generated, async_sessionmaker(async_engine):
        worker = Worker(engine, queue, session_factory=factory)
        with pytest.raises(InvalidArgument, match=rf"makes an? .* where worker {worker.name} needs sessions of .*"):
            worker.start()
        assert worker._runtime is None
    for factory in sessionmaker(), made:
        with pytest.raises(InvalidArgument, match=r"needs sessions of .*AsyncSession; give an async_sessionmaker"):
            await AsyncWorker(async_engine, other, session_factory=factory).start()


def test_the_session_of_the_caller_goes_on(queue: Queue, engine: Engine) -> None:
    """A scoped_session gives the session that its caller has a transaction in: a start leaves that alone."""
    sessions = scoped_session(sessionmaker(engine))
    queue.handler()(_rolls_back)
    sessions.execute(text("create temporary table mine () on commit drop"))
    with Worker(engine, queue, session_factory=sessions):
        assert sessions.execute(text("select count(*) from mine")).scalar() == 0
    sessions.remove()


def test_one_session_for_all(queue: Queue, engine: Engine, database: Database) -> None:
    """Where the factory gives one session again and again, nothing of a handler that failed is left in it."""

    @queue.handler(retry=AT_ONCE)
    def handle(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        if delivery.attempt == 1:
            raise ValueError("after the write")

    send(engine, queue, 1)
    with Session(engine) as own:
        assert drained(engine, queue, concurrency=1, session_factory=lambda: own).stats.completed == 1
    assert count_effects(database) == 1


async def test_closed_whatever_is_cancelled(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A task that is cancelled while its session closes leaves no connection behind: the close goes on."""
    closing, go = asyncio.Event(), asyncio.Event()
    ends: list[str] = []

    class Slow(AsyncSession):
        """Closes when it may."""

        async def close(self) -> None:
            closing.set()
            try:
                await go.wait()
                ends.append("closed")
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            finally:
                await super().close()

    @queue.handler()
    async def handle(_: Delivery, session: AsyncSession) -> None:
        await session.execute(text("select 1"))

    send(engine, queue, 1)
    sessions = async_sessionmaker(async_engine, class_=Slow)
    async with AsyncWorker(async_engine, queue, session_factory=sessions) as worker:
        await closing.wait()
        assert isinstance(worker._executor, TaskExecutor)
        tasks = list(worker._executor._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        go.set()
        await auntil(lambda: ends, "it has ended")
    assert "cancelled" not in ends


class _Audited(Session):
    pass


class _Audited2(Session):
    pass


class _Both(_Audited, _Audited2):
    pass


def test_classes_of_sessions(queue: Queue, engine: Engine) -> None:
    """Whatever its parameter is called, a job gets a session of the class that it is annotated with.

    Handlers of two classes are refused without a factory; one that makes sessions of both classes serves them.
    """
    found: list[type[Session]] = []

    @queue.job
    def bill(db: _Audited) -> None:
        found.append(type(db))

    bill.enqueue(engine, channel="a")
    drained(engine, queue)
    assert issubclass(found.pop(), _Audited)

    @queue.handler("other")
    def handle(_: Delivery, session: _Audited2) -> None:
        found.append(type(session))

    bill.enqueue(engine, channel="a")
    send(engine, queue, 1, kind="other")
    with pytest.raises(InvalidArgument, match="give them one class"):
        drained(engine, queue)
    drained(engine, queue, session_factory=sessionmaker(engine, class_=_Both))
    assert [one.__mro__[1] for one in found] == [_Both, _Both]


async def test_a_narrow_pool_is_said(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A worker whose handlers' sessions may want more connections than their pool has says so at its start."""
    pools: list[tuple[dict[str, Any], Any, bool]] = [
        ({"pool_size": 3, "max_overflow": 0}, _rolls_back, True),
        ({"pool_size": 3, "max_overflow": 0}, _arolls_back, True),
        ({"pool_size": 2, "max_overflow": 2}, _rolls_back, False),
        ({"pool_size": 1, "max_overflow": -1}, _rolls_back, False),
        ({"pool_size": 0, "max_overflow": 0}, _rolls_back, False),
        ({"poolclass": NullPool}, _rolls_back, False),
        ({"pool_size": 3, "max_overflow": 0}, print, False),
    ]
    for pool, handler, is_said in pools:
        caplog.clear()
        queue = Queue("documents")
        queue.handler()(handler)
        if handler is _arolls_back:
            async_engine = create_async_engine(database.url, **pool)
            async with AsyncWorker(async_engine, queue, concurrency=4):
                pass
            await async_engine.dispose()
        else:
            engine = create_engine(database.url, **pool)
            with Worker(engine, queue, concurrency=4):
                pass
            engine.dispose()
        said = "has 3 connection(s)" in caplog.text and "or give the worker concurrency=3" in caplog.text
        assert said == is_said, pool


def _commit(delivery: Delivery, session: Session, times: int = 1) -> None:
    for _ in range(times):
        write_effect(session, delivery)
        session.commit()


class _Commits:
    """A handler that is an object."""

    def __call__(self, delivery: Delivery, session: Session) -> None:
        _commit(delivery, session)


_OBJECTS: dict[str, Any] = {"partial": functools.partial(_commit, times=2), "object": _Commits()}


async def test_where_warnings_are_errors(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """The commit fails before it writes anything, and the attempt with it; the error names the handler."""

    async def acommit(delivery: Delivery, session: AsyncSession) -> None:
        await session.run_sync(lambda sync: _commit(delivery, sync))

    handlers: dict[str, Any] = {"function": _commit, "async": acommit, **_OBJECTS}
    for kind, handler in handlers.items():
        queue.handler(kind)(handler)
        send(engine, queue, 1, kind=kind)
    sessions = sessionmaker(engine)
    worker = AsyncWorker(async_engine, queue, retry=LATER, sync_session_factory=sessions, housekeeping=False)
    await worker.run(drain=True)
    errors = {row.kind: row.error for row in database.rows("select kind, error from fq_message")}
    assert errors.keys() == handlers.keys()
    for kind, error in errors.items():
        assert f"HandlerTransactionWarning: the handler of kind '{kind}' commits its session itself" in error
    assert count_effects(database) == 0


def _warned(engine: Engine, queue: Queue) -> list[tuple[str, int]]:
    """Where warnings are shown by default, while all is completed that there is."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default", HandlerTransactionWarning)
        assert drained(engine, queue).stats.retried == 0
    return [(one.filename, one.lineno) for one in shown if one.category is HandlerTransactionWarning]


def test_a_warning(queue: Queue, engine: Engine, database: Database) -> None:
    """Else the handler goes on and its message is completed. By default one warning is shown, at the handler."""

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        _commit(delivery, session, times=2)

    send(engine, queue, 1, 2, kind="parse")
    assert _warned(engine, queue) == [(__file__, parse.__code__.co_firstlineno)]
    assert count_effects(database) == 4
    assert is_empty(database)


def test_where_a_warning_is_shown(queue: Queue, engine: Engine) -> None:
    """It is at the function of the application, however that is declared: filters by module find it."""
    for kind, handler in _OBJECTS.items():
        queue.handler(kind)(handler)
        send(engine, queue, 1, kind=kind)

    @queue.job
    def job(context: Context, session: Session) -> None:
        _commit(context.delivery, session)

    job.enqueue(engine, "a")
    functions: list[Any] = [_commit, _Commits.__call__, job.function]
    places = {(__file__, function.__code__.co_firstlineno) for function in functions}
    assert set(_warned(engine, queue)) == places


def test_a_savepoint_and_a_rollback(queue: Queue, engine: Engine, database: Database) -> None:
    """Neither is noticed: what was rolled back has never happened, and all else commits with the completion."""

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        session.rollback()
        with session.begin_nested():
            write_effect(session, delivery)

    send(engine, queue, 1, kind="parse")
    assert drained(engine, queue).stats.completed == 1
    assert count_effects(database) == 1
