"""Sessions of handlers, and the factories that make them."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Delivery, InvalidArgument, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.worker.executor import TaskExecutor
from tests.fixtures.database import Database
from tests.worker.helpers import auntil, is_empty, send, until


@pytest.mark.parametrize("make", ["generator", "async session"])
def test_a_session_factory_that_makes_none(queue: Queue, engine: Engine, async_engine: AsyncEngine, make: str) -> None:
    """It does not start: each message would lose an attempt, until all are dead letters."""

    def generated() -> Any:
        yield None

    @queue.handler()
    def handle(_: Delivery, session: Session) -> None:
        session.rollback()

    factory: Any = generated if make == "generator" else async_sessionmaker(async_engine)
    worker = Worker(engine, queue, session_factory=factory)
    with pytest.raises(
        InvalidArgument, match=rf"makes an? .* where worker {worker.name} needs sessions of .*; give a session"
    ):
        worker.start()
    assert worker._runtime is None


async def test_an_async_session_factory_that_makes_none(queue: Queue, async_engine: AsyncEngine) -> None:
    """The same in asyncio."""

    @queue.handler()
    async def handle(_: Delivery, session: AsyncSession) -> None:
        await session.rollback()

    async def made() -> AsyncSession:
        return AsyncSession(async_engine)

    for factory in (sessionmaker(), made):
        worker = AsyncWorker(async_engine, queue, session_factory=cast("Any", factory))
        with pytest.raises(InvalidArgument, match=r"needs sessions of .*AsyncSession; give an async_sessionmaker"):
            await worker.start()


def test_the_session_of_the_caller_goes_on(queue: Queue, engine: Engine) -> None:
    """A scoped_session gives the session that its caller has a transaction in: a start leaves that alone."""
    sessions = scoped_session(sessionmaker(engine))

    @queue.handler()
    def handle(_: Delivery, session: Session) -> None:
        session.rollback()

    sessions.execute(text("create temporary table mine () on commit drop"))
    with Worker(engine, queue, session_factory=sessions):
        assert sessions.execute(text("select count(*) from mine")).scalar() == 0
    sessions.remove()


def test_one_session_for_all(queue: Queue, engine: Engine, database: Database) -> None:
    """Where the factory gives one session again and again, nothing of a handler that failed is left in it."""
    database.execute("create table effect (message_id bigint)")

    @queue.handler(retry=RetryPolicy(first=timedelta()))
    def handle(delivery: Delivery, session: Session) -> None:
        session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})
        if delivery.attempt == 1:
            raise ValueError("after the write")

    send(engine, queue, 1)
    with Session(engine) as own, Worker(engine, queue, concurrency=1, session_factory=lambda: own):
        until(lambda: is_empty(database), "it is done")
    assert database.value("select count(*) from effect") == 1


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


def test_a_session_of_a_job_is_known_by_its_annotation(queue: Queue, engine: Engine) -> None:
    """Whatever its parameter is called, a job gets a session of the class that it is annotated with."""
    found: list[tuple[int, bool]] = []

    @queue.job
    def bill(db: _Audited, *, order: int) -> None:
        found.append((order, isinstance(db, _Audited)))

    bill.enqueue(engine, channel="a", order=1)
    Worker(engine, queue).run(drain=True)
    assert found == [(1, True)]


def test_handlers_of_two_classes_of_sessions(queue: Queue, engine: Engine) -> None:
    """Without a factory that is refused; one that makes sessions of both classes serves them."""
    found: list[str] = []

    @queue.handler("a")
    def first(_: Delivery, session: _Audited) -> None:
        found.append(type(session).__mro__[1].__name__)

    @queue.handler("b")
    def second(_: Delivery, session: _Audited2) -> None:
        found.append(type(session).__mro__[1].__name__)

    for kind in "ab":
        queue.enqueue(engine, channel="a", payload=1, kind=kind)
    with pytest.raises(InvalidArgument, match="give them one class"):
        Worker(engine, queue).run(drain=True)
    Worker(engine, queue, session_factory=sessionmaker(engine, class_=_Both)).run(drain=True)
    assert found == ["_Both", "_Both"]
