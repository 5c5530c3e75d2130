"""What makes the sessions of handlers."""

from typing import Any, cast

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Delivery, InvalidArgument, Queue, Worker


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
        InvalidArgument, match=rf"makes an? .* where worker {worker.name} needs a Session; give a session"
    ):
        worker.start()
    assert worker._running is None


async def test_an_async_session_factory_that_makes_none(queue: Queue, async_engine: AsyncEngine) -> None:
    """The same in asyncio."""

    @queue.handler()
    async def handle(_: Delivery, session: AsyncSession) -> None:
        await session.rollback()

    async def made() -> AsyncSession:
        return AsyncSession(async_engine)

    for factory in (sessionmaker(), made):
        worker = AsyncWorker(async_engine, queue, session_factory=cast("Any", factory))
        with pytest.raises(InvalidArgument, match="needs an AsyncSession; give an async_sessionmaker"):
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
