"""Awaitables that handlers and middleware return, as if an await was forgotten: awaited or refused, never dropped."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Bury, Context, Delivery, Queue, Worker, WorkerError
from sqlalchemy_fairqueue.testing import adrain, aperform, drain, perform
from tests.fixtures.database import Database
from tests.worker.helpers import count_effects, send

pytestmark = pytest.mark.usefixtures("effects")

_INSERT = text("insert into effect values (1)")


async def _in_session(_: Delivery, session: AsyncSession) -> Any:
    return session.execute(_INSERT)


async def _as_a_task(_: Delivery, session: AsyncSession) -> Any:
    return asyncio.create_task(session.execute(_INSERT))


async def _gathered(_: Delivery, session: AsyncSession) -> Any:
    return asyncio.gather(session.execute(_INSERT))


@pytest.mark.parametrize("handle", [_in_session, _as_a_task, _gathered])
@pytest.mark.parametrize("forgets", [False, True], ids=["handler", "middleware too"])
async def test_an_async_handler(
    queue: Queue,
    engine: Engine,
    async_engine: AsyncEngine,
    database: Database,
    handle: Callable[..., Any],
    *,
    forgets: bool,
) -> None:
    """What an async handler returns is awaited within its transaction, also if its middleware does not await it."""
    queue.handler(handle)
    if forgets:

        @queue.middleware
        async def forgetful(_: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
            return proceed()

    send(engine, queue, 1)
    worker = AsyncWorker(async_engine, queue, housekeeping=False)
    await worker.run(drain=True)
    assert (worker.stats.completed, count_effects(database)) == (1, 1)
    async with AsyncSession(async_engine) as session:
        assert await aperform(queue, 1, session=session) is None
        queue.enqueue(session, channel="a", payload=1)
        await adrain(session, queue)
        await session.commit()
    assert count_effects(database) == 3


async def test_an_outcome_that_is_awaited_counts(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An awaitable that gives an outcome means the outcome."""

    async def later() -> Bury:
        return Bury("later")

    @queue.handler
    async def handle(_: Delivery) -> Any:
        return later()

    send(engine, queue, 1)
    worker = AsyncWorker(async_engine, queue, housekeeping=False)
    await worker.run(drain=True)
    assert worker.stats.buried == 1
    assert await aperform(queue, 1) == Bury("later")


async def _work() -> Any:
    return None


async def _twice() -> Any:
    return _work()


def _generator() -> Any:
    yield


async def _async_generator() -> Any:
    yield


def _refused(returned: Callable[[], Any], way: str) -> Queue:
    """A queue whose plain handler, or job, returns something that nobody awaits."""
    queue = Queue("documents")
    if way == "job":

        @queue.job(kind="default")
        def job() -> Any:
            return returned()

    elif way == "session":
        queue.handler(lambda _, session: returned())  # noqa: ARG005 - named as it is asked for
    else:
        queue.handler(lambda _: returned())
    return queue


@pytest.mark.many(4)
@pytest.mark.parametrize("way", ["plain", "session", "job"])
@pytest.mark.parametrize("returned", [_work, _generator, _async_generator])
def test_a_plain_handler(engine: Engine, way: str, returned: Callable[[], Any]) -> None:
    """What a plain handler returns to nobody who would await or run it fails the attempt, and in tests of handlers."""
    queue = _refused(returned, way)
    send(engine, queue, {}, max_attempts=1)
    Worker(engine, queue, housekeeping=False).run(drain=True)
    [dead] = queue.dead_letters(engine)
    assert "nothing was done" in (dead.error or "")
    with Session(engine) as session:
        with pytest.raises(WorkerError, match="nothing was done"):
            perform(queue, {}, session=session)
        queue.enqueue(session, channel="a", payload={})
        with pytest.raises(WorkerError, match="nothing was done"):
            drain(session, queue)


@pytest.mark.parametrize(
    ("way", "returned", "fails"),
    [("plain", _work, False), ("plain", _twice, True), ("session", _work, True), ("plain", _async_generator, True)],
)
async def test_a_plain_handler_in_a_loop(
    engine: Engine, async_engine: AsyncEngine, way: str, returned: Callable[[], Any], *, fails: bool
) -> None:
    """An AsyncWorker awaits what a plain function without a session returns, once; aperform agrees."""
    queue = _refused(returned, way)
    send(engine, queue, {}, max_attempts=1)
    worker = AsyncWorker(async_engine, queue, housekeeping=False, sync_session_factory=lambda: Session(engine))
    await worker.run(drain=True)
    assert (worker.stats.completed, worker.stats.buried) == ((0, 1) if fails else (1, 0))
    with Session(engine) as session:
        if fails:
            with pytest.raises(WorkerError, match="nothing was done"):
                await aperform(queue, {}, session=session)
        else:
            assert await aperform(queue, {}, session=session) is None
