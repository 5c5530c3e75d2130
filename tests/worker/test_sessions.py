"""Sessions of handlers, and the factories that make them."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Delivery, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.worker.executor import TaskExecutor
from tests.fixtures.database import Database
from tests.worker.helpers import AT_ONCE, auntil, count_effects, drained, send, write_effect


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


@pytest.mark.usefixtures("effects")
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
