"""Awaitables that handlers and middleware return, as if an await was forgotten: awaited or refused, never dropped."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Bury, Context, Delivery, Queue
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.testing import aperform, drain, perform
from tests.fixtures.database import Database
from tests.worker.helpers import count_effects, drained, send

pytestmark = pytest.mark.usefixtures("effects")

_INSERT = text("insert into effect values (1)")


async def _in_session(_: Delivery, session: AsyncSession) -> Any:
    return session.execute(_INSERT)


async def _as_a_task(_: Delivery, session: AsyncSession) -> Any:
    return asyncio.create_task(session.execute(_INSERT))


async def _gathered(_: Delivery, session: AsyncSession) -> Any:
    return asyncio.gather(session.execute(_INSERT))


@pytest.mark.parametrize("forgets", [False, True], ids=["handler", "middleware too"])
async def test_an_async_handler(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, *, forgets: bool
) -> None:
    """What an async handler returns is awaited within its transaction, also if its middleware does not await it."""
    kinds = {handle.__name__: handle for handle in (_in_session, _as_a_task, _gathered)}
    for kind, handle in kinds.items():
        queue.handler(kind)(handle)
        send(engine, queue, 1, kind=kind)
    if forgets:

        @queue.middleware
        async def forgetful(_: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
            return proceed()

    worker = AsyncWorker(async_engine, queue, housekeeping=False)
    await worker.run(drain=True)
    assert (worker.stats.completed, count_effects(database)) == (3, 3)
    async with AsyncSession(async_engine) as session:
        for kind in kinds:
            assert await aperform(queue, 1, kind=kind, session=session) is None
            queue.enqueue(session, channel="a", payload=1, kind=kind)
        await drain(session, queue)
        await session.commit()
    assert count_effects(database) == 9


async def _work() -> Any:
    return None


async def _later() -> Bury:
    return Bury("later")


async def _asynchronously(_: Delivery) -> Any:
    return _later()


async def _twice() -> Any:
    return _work()


def _generator() -> Any:
    yield


async def _async_generator() -> Any:
    yield


_RETURNED: list[Callable[[], Any]] = [_work, _generator, _async_generator]


def _plain(returned: Callable[[], Any]) -> Callable[..., Any]:
    return lambda _: returned()


def _with_session(returned: Callable[[], Any]) -> Callable[..., Any]:
    return lambda _, session: returned()  # noqa: ARG005 - named as it is asked for


def _job(returned: Callable[[], Any]) -> Callable[[], Any]:
    def job() -> Any:
        return returned()

    return job


def test_a_plain_handler(queue: Queue, engine: Engine) -> None:
    """What a plain handler returns to nobody who would await or run it fails the attempt, and in tests of handlers."""
    kinds = []
    for returned in _RETURNED:
        for declare in _plain, _with_session, _job:
            kinds.append(f"{declare.__name__} {returned.__name__}")
            if declare is _job:
                queue.job(kind=kinds[-1])(_job(returned))
            else:
                queue.handler(kinds[-1])(declare(returned))
            send(engine, queue, {}, kind=kinds[-1], max_attempts=1)
    drained(engine, queue)
    errors = {letter.kind: letter.error or "" for letter in queue.dead_letters.list(engine)}
    for kind in kinds:
        assert "nothing was done" in errors[kind], kind
        with Session(engine) as session:
            with pytest.raises(WorkerError, match="nothing was done"):
                perform(queue, {}, kind=kind, session=session)
            queue.enqueue(session, channel="a", payload={}, kind=kind)
            with pytest.raises(WorkerError, match="nothing was done"):
                drain(session, queue)


async def test_a_plain_handler_in_a_loop(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An AsyncWorker awaits what functions without a session return, once, and an outcome counts; aperform agrees."""
    queue.handler("awaited")(_plain(_work))
    queue.handler("outcome")(_asynchronously)
    refused = {"twice": _plain(_twice), "session": _with_session(_work), "generator": _plain(_async_generator)}
    for kind, handle in refused.items():
        queue.handler(kind)(handle)
    for kind in ("awaited", "outcome", *refused):
        send(engine, queue, {}, kind=kind, max_attempts=1)
    worker = AsyncWorker(async_engine, queue, housekeeping=False, sync_session_factory=lambda: Session(engine))
    await worker.run(drain=True)
    assert (worker.stats.completed, worker.stats.buried) == (1, 4)
    with Session(engine) as session:
        assert await aperform(queue, {}, kind="awaited", session=session) is None
        assert await aperform(queue, {}, kind="outcome", session=session) == Bury("later")
        for kind in refused:
            with pytest.raises(WorkerError, match="nothing was done"):
                await aperform(queue, {}, kind=kind, session=session)
