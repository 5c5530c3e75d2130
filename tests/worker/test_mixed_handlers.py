"""Plain and async handlers of one queue, each with its session, in one AsyncWorker."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Bury, Context, Delivery, Queue
from sqlalchemy_fairqueue.worker import executor, threads
from tests.fixtures.database import Database
from tests.worker.helpers import (
    AT_ONCE,
    LONG_LEASE,
    MANY_HEARTBEATS,
    auntil,
    count_effects,
    is_empty,
    retimed,
    send,
    until,
)

pytestmark = pytest.mark.usefixtures("effects")

_INSERT = text("insert into effect values (:id)")

MakeWorker = Callable[..., AsyncWorker]


@pytest.fixture
def make_mixed(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> MakeWorker:
    """Make an AsyncWorker with sessions of both kinds."""

    def make_one(timings: dict[str, float] | None = None, **options: Any) -> AsyncWorker:
        sessions = sessionmaker(engine)
        worker = AsyncWorker(async_engine, queue, sync_session_factory=sessions, housekeeping=False, **options)
        return retimed(worker, **(timings or {}))

    return make_one


async def test_both(queue: Queue, engine: Engine, database: Database, make_mixed: MakeWorker) -> None:
    """Each gets the session that it can use; writes commit once with the completion; plain ones have threads."""
    threads = set()

    @queue.handler("plain")
    def plain(delivery: Delivery, session: Session) -> Bury | None:
        threads.add(threading.get_ident())
        session.execute(_INSERT, {"id": delivery.message_id})
        if delivery.attempt == 1:
            raise ValueError("after the write")
        return Bury("enough") if delivery.payload == "bad" else None

    @queue.handler("async")
    async def asynchronous(delivery: Delivery, session: AsyncSession) -> None:
        await session.execute(_INSERT, {"id": delivery.message_id})

    @queue.handler("coroutine")
    async def coroutine(_: Delivery, context: Context) -> None:
        context.check()

    @queue.handler("thread")
    def thread(_: Delivery) -> None:
        threads.add(threading.get_ident())

    send(engine, queue, *range(5), "bad", kind="plain")
    for kind in ("async", "coroutine", "thread"):
        send(engine, queue, *range(5), kind=kind)
    worker = make_mixed(retry=AT_ONCE)
    await worker.run(drain=True)
    assert worker.stats.completed == 20
    assert count_effects(database) == 11
    assert database.value("select reason from fq_dead_letter") == "enough"
    assert threading.get_ident() not in threads


async def test_its_message_is_cancelled(
    queue: Queue, engine: Engine, database: Database, make_mixed: MakeWorker
) -> None:
    """The session of a plain function refuses to commit when its message was cancelled."""
    begun, go = threading.Event(), threading.Event()

    @queue.handler()
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        session.execute(_INSERT, {"id": delivery.message_id})
        begun.set()
        until(lambda: go.is_set() and context.cancelled, "it may go on")

    [message_id] = send(engine, queue, 1)
    async with make_mixed(timings=MANY_HEARTBEATS, lease=LONG_LEASE) as worker:
        await auntil(begun.is_set, "it has written")
        await queue.cancel(worker._options.engine, message_id)  # type: ignore[misc]
        await auntil(lambda: is_empty(database), "the message is gone")
        await auntil(lambda: worker.stats.hung == 1, "its thread goes on")
        go.set()
        await auntil(lambda: worker.stats.hung == 0, "it has returned")
    assert count_effects(database) == 0


async def test_a_thread_that_cannot_be_started(
    queue: Queue, engine: Engine, database: Database, make_mixed: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt for which the system has no thread fails, and its place in the worker is free again."""
    refusals = ["can't start new thread"]

    async def in_thread(work: Callable[[], Any]) -> Any:
        if refusals:
            raise RuntimeError(refusals.pop())
        return await threads.in_thread(work)

    queue.handler("plain")(print)
    async with make_mixed(concurrency=1, retry=AT_ONCE) as worker:
        monkeypatch.setattr(executor, "in_thread", in_thread)
        send(engine, queue, 1, kind="plain")
        await auntil(lambda: is_empty(database), "it is handled in the second attempt")
        assert (worker.stats.retried, worker.stats.hung) == (1, 0)
