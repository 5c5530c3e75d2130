"""A worker in an event loop, with plain and async handlers."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Bury, Context, Delivery, Queue
from sqlalchemy_fairqueue.worker import executor, threads
from sqlalchemy_fairqueue.worker.executor import TaskExecutor
from sqlalchemy_fairqueue.worker.leases import HeldDelivery
from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import MakeWorker
from tests.worker.helpers import (
    AT_ONCE,
    LATER,
    LONG_LEASE,
    MANY_HEARTBEATS,
    auntil,
    call,
    count_effects,
    expire_leases,
    given_back,
    held_of,
    is_empty,
    outlive,
    retimed,
    send,
    until,
)

pytestmark = pytest.mark.usefixtures("effects")


_INSERT = text("insert into effect values (:id)")


async def test_a_timeout_cancels(queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """A handler that takes too long is cancelled, its writes are gone, and its attempt has failed.

    So has one that raises GeneratorExit in a loop that runs: its attempts count.
    """
    ended = []

    @queue.handler(timeout=timedelta(milliseconds=50))
    async def handle(delivery: Delivery, session: AsyncSession) -> None:
        try:
            await session.execute(_INSERT, {"id": delivery.message_id})
            await asyncio.Event().wait()
        finally:
            ended.append(delivery.message_id)

    @queue.handler("exit", retry=AT_ONCE)
    async def leave(_: Delivery) -> None:
        raise GeneratorExit

    sent = send(engine, queue, 1)
    send(engine, queue, 1, kind="exit", max_attempts=2)
    async with AsyncWorker(async_engine, queue, retry=LATER) as worker:
        await auntil(lambda: database.value("select max(error) from fq_message") is not None, "it has failed")
        await auntil(lambda: worker.stats.buried or worker.stats.released, "the other one has ended")
    assert "HandlerTimeout" in database.value("select error from fq_message")
    assert ended == sent
    assert count_effects(database) == 0
    assert worker.stats.released == 0
    assert database.value("select attempts from fq_dead_letter") == 2


async def test_a_lost_lease_cancels(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """When the lease is lost the handler is cancelled, and a later delivery does the work.

    A handler that swallows its cancellation can still not commit.
    """
    begun: list[str] = []
    cancelled: list[bool] = []

    @queue.handler()
    async def handle(delivery: Delivery, session: AsyncSession, context: Context) -> None:
        await session.execute(_INSERT, {"id": delivery.message_id})
        begun.append(delivery.payload)
        if begun.count(delivery.payload) > 1:
            return
        if len(begun) == 2:
            expire_leases(database)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(context.lost)
            if delivery.payload == "obeys":
                raise

    send(engine, queue, "obeys", "swallows")
    async with retimed(AsyncWorker(async_engine, queue, lease=LONG_LEASE, retry=AT_ONCE), **MANY_HEARTBEATS):
        await auntil(lambda: is_empty(database), "they are done by later deliveries")
    assert cancelled == [True, True]
    assert count_effects(database) == 2


async def test_a_blocked_loop_keeps_its_leases(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, clock: Clock
) -> None:
    """A handler that blocks the loop for longer than the lease loses nothing: the heartbeat is not in the loop."""
    seen = []
    other = Queue("documents")

    @queue.handler()
    async def handle(delivery: Delivery, session: AsyncSession) -> None:
        await session.execute(_INSERT, {"id": delivery.message_id})
        seen.append(delivery.deliveries)
        # On purpose: nothing of the loop runs meanwhile.
        outlive(LONG_LEASE, clock, worker)
        assert not other.dequeue(engine)

    send(engine, queue, 1)
    worker = retimed(AsyncWorker(async_engine, queue, lease=LONG_LEASE), **MANY_HEARTBEATS)
    async with worker:
        await auntil(lambda: is_empty(database), "it is done")
    assert seen == [1]
    assert count_effects(database) == 1


async def test_a_blocked_loop_hoards_nothing(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """What a worker took whose loop is blocked is given back to others, uncounted, and it takes that once."""
    released = "select count(*) >= 3 from fq_message where lease_id is null and attempts = 0 and deliveries = 1"

    @queue.handler()
    async def handle(delivery: Delivery) -> None:
        if delivery.payload == "block":
            # Whatever comes meanwhile.
            send(engine, queue, *range(4), channel="customer-2")
            until(lambda: database.value(released), "what it took is given back")
            taken = worker.stats.taken
            pause.wait(0.5)
            again.append(worker.stats.taken - taken)

    pause, again = threading.Event(), list[int]()
    async with AsyncWorker(async_engine, queue, concurrency=4) as worker:
        send(engine, queue, "block")
        await auntil(lambda: is_empty(database), "all are done")
    assert again == [0]


async def test_a_blocked_loop_has_no_room(queue: Queue, async_engine: AsyncEngine) -> None:
    """When what was taken has waited for the loop for too long, there is no room, however late the loop was called."""
    options = AsyncWorker(async_engine, queue, concurrency=4)._options
    executor = TaskExecutor(options, FetchTrigger(monotonic), lambda *_: None)
    taken_at = monotonic() - 2 * options.timings.stale_after
    delivery = SimpleNamespace(channel="a", max_attempts=1)
    # As much of a delivery as a buffer needs.
    executor.buffer.extend([HeldDelivery(delivery, None, None, taken_at)])  # type: ignore[arg-type]
    executor.begin()
    assert executor.free() == 0
    executor.buffer.pop()
    await auntil(lambda: executor.free() == 4, "the loop has come")


async def test_stop_waits_and_then_cancels(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop lets handlers finish; those that do not in time are cancelled, and their messages given back.

    It says so once: that its handlers were cancelled is no failure of theirs.
    """
    started, ends = asyncio.Event(), []

    @queue.handler()
    async def handle(delivery: Delivery, context: Context) -> None:
        started.set()
        try:
            await auntil(lambda: context.stopping and delivery.payload == "short", "it may end")
        finally:
            ends.append(delivery.payload)

    for payload, grace in ("short", PATIENCE), ("long", timedelta(milliseconds=100)):
        send(engine, queue, payload)
        worker = AsyncWorker(async_engine, queue)
        running = asyncio.create_task(worker.run())
        await started.wait()
        started.clear()
        await worker.stop(grace)
        await running
        assert ends.pop() == payload
        assert is_empty(database) == (payload == "short")
    assert given_back(database) == 1
    [said] = [record.getMessage() for record in caplog.records]
    assert f"gives back messages [{database.value('select id from fq_message')}]" in said


async def test_concurrency(queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """As many handlers run at a time as were asked for, and no more."""
    now, most = 0, 0
    together = asyncio.Event()

    @queue.handler()
    async def handle(_: Delivery) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 5:
            together.set()
        await asyncio.wait_for(together.wait(), PATIENCE.total_seconds())
        now -= 1

    send(engine, queue, *range(30))
    async with AsyncWorker(async_engine, queue, concurrency=5):
        await auntil(lambda: is_empty(database), "all are done")
    assert most == 5


async def test_both_kinds_of_handlers(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
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
    worker = AsyncWorker(async_engine, queue, retry=AT_ONCE, sync_session_factory=sessionmaker(engine))
    await worker.run(drain=True)
    assert worker.stats.completed == 20
    assert count_effects(database) == 11
    assert database.value("select reason from fq_dead_letter") == "enough"
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("what", ["time", "message"])
async def test_a_plain_handler_that_may_not_go_on(
    queue: Queue, engine: Engine, database: Database, make: MakeWorker, what: str
) -> None:
    """A plain function's session refuses to commit when its time is over or its message cancelled: it may go on."""
    go = threading.Event()
    contexts: list[Context] = []

    @queue.handler(timeout=timedelta(hours=1))
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        session.execute(_INSERT, {"id": delivery.message_id})
        contexts.append(context)
        until(go.is_set, "it may go on")

    [message_id] = send(engine, queue, 1)
    timings = {**MANY_HEARTBEATS, "cleanup": 0.0, "ignored_cancel": 0.01}
    worker = make(queue, retry=LATER, lease=LONG_LEASE, timings=timings)
    await call(worker.start)
    await auntil(lambda: contexts, "it has written")
    assert worker._runtime is not None
    if what == "time":
        held_of(contexts[0]).time_over_at = 0.0
        worker._runtime.executor._time_limits.wake_by(0.0)
    else:
        queue.cancel(engine, message_id)
        await auntil(lambda: contexts[0].cancelled, "it is told")
    await auntil(lambda: worker.stats.hung == 1, "it hangs")
    go.set()
    await auntil(lambda: worker.stats.hung == 0, "it has returned")
    await call(worker.stop)
    assert is_empty(database) == (what == "message")
    if what == "time":
        assert "HandlerTimeout" in database.value("select error from fq_message where attempts = 1")
    assert count_effects(database) == 0


async def test_a_thread_that_cannot_be_started(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, seen: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt for which the system has no thread fails, and its place in the worker is free again."""
    refusals = ["can't start new thread"]

    async def in_thread(work: Callable[[], Any]) -> Any:
        if refusals:
            raise RuntimeError(refusals.pop())
        return await threads.in_thread(work)

    async with AsyncWorker(async_engine, queue, concurrency=1, retry=AT_ONCE, housekeeping=False) as worker:
        monkeypatch.setattr(executor, "in_thread", in_thread)
        send(engine, queue, 1)
        await auntil(lambda: worker.stats.completed, "it is handled in the second attempt")
        assert (seen, worker.stats.retried, worker.stats.hung) == ([1], 1, 0)
