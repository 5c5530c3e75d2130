"""Stops that come from odd places, twice, or not at all."""

import asyncio
import gc
import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, Queue, Worker
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.worker.executor import ThreadExecutor
from sqlalchemy_fairqueue.worker.timings import Prefetch
from tests.fixtures.database import Database
from tests.fixtures.drivers import async_url
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import StartWorker
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, auntil, is_empty, send, threads_of, until


def test_by_a_handler(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A handler that stops its worker does not wait for itself: it ends as ever, and then the worker stops."""
    returned = threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        worker.stop()
        worker.stop()
        returned.set()

    worker = start(queue, concurrency=1)
    send(engine, queue, 1)
    until(returned.is_set, "it has returned")
    until(lambda: not threads_of(worker.name), "the worker has stopped")
    assert is_empty(database)
    assert (worker.stats.completed, worker.stats.released) == (1, 0)


async def test_a_stop_that_is_cancelled(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """Who cancels a stop does not wait for its end, but it comes: nothing of the worker is left."""
    started, go = asyncio.Event(), asyncio.Event()

    @queue.handler()
    async def handle(_: Delivery) -> None:
        started.set()
        await go.wait()

    worker = AsyncWorker(async_engine, queue)
    await worker.start()
    send(engine, queue, 1)
    await started.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.stop(), 0.05)
    go.set()
    await auntil(lambda: not threads_of(worker.name), "the worker has stopped")
    await worker.stop()
    assert worker.stats.completed == 1


def test_a_loop_that_is_closed(
    queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose loop is closed under it gives back what it had, holds nothing more, and can be started again."""
    own = create_async_engine(async_url(engine.url))
    worker = AsyncWorker(own, queue, concurrency=2)
    started, forever = threading.Event(), [True]

    @queue.handler()
    async def handle(_: Delivery) -> None:
        started.set()
        while forever[0]:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0.01)

    async def begin() -> None:
        await worker.start()
        await auntil(started.is_set, "it is at work")

    async def finish() -> None:
        await worker.start()
        await auntil(lambda: is_empty(database), "all is done")
        await worker.stop()

    send(engine, queue, 1)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    # Nobody cancels its tasks, as asyncio.run would.
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    del tasks, task, loop
    until(lambda: database.value("select count(*) from fq_message where lease_id is null") == 1, "it is given back")
    until(lambda: not threads_of(worker.name), "its threads have ended")
    forever[0] = False
    asyncio.run(finish())
    # The handler's coroutine is closed by whoever forgets it.
    gc.collect()
    assert "failed at attempt" not in caplog.text


async def test_a_loop_that_is_blocked_takes_once(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """A worker whose loop is blocked does not take again and again what it gives back."""

    @queue.handler()
    async def handle(delivery: Delivery) -> None:
        if delivery.payload == "block":
            # Whatever comes meanwhile.
            send(engine, queue, *range(4), channel="customer-2")
            until(lambda: worker.stats.released >= 3, "what it took is given back")
            taken = worker.stats.taken
            until(lambda: database.value("select max(deliveries) from fq_message where lease_id is null") == 1, "once")
            pause.wait(0.5)
            again.append(worker.stats.taken - taken)

    pause, again = threading.Event(), list[int]()
    async with AsyncWorker(async_engine, queue, concurrency=4) as worker:
        send(engine, queue, "block")
        await auntil(lambda: is_empty(database), "all are done")
    assert again == [0]


def test_a_batch_that_comes_after_the_stop(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a slow dequeue brings when the worker has stopped is not begun by a handler that was left behind."""
    go, answered = threading.Event(), threading.Event()
    seen: list[object] = []

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        seen.append(delivery.payload)
        until(go.is_set, "it may end")

    original = Consumer.dequeue

    def dequeue(*arguments: Any) -> Any:
        batch = original(*arguments)
        if batch and batch[0].payload == "late":
            until(answered.is_set, "the worker has stopped")
        return batch

    monkeypatch.setattr(Consumer, "dequeue", dequeue)
    worker = start(queue, concurrency=2)
    send(engine, queue, "first")
    until(lambda: seen == ["first"], "it is at work")
    send(engine, queue, "late")
    until(lambda: database.value("select count(*) from fq_message where lease_id is not null") == 2, "it is taken")
    worker.stop(timedelta())
    answered.set()
    go.set()
    until(lambda: not threads_of(worker.name), "all threads have ended")
    assert seen == ["first"]


def test_a_second_run(queue: Queue, engine: Engine, database: Database) -> None:
    """A second run of a worker that runs is refused, and does not keep the first one from ending."""
    queue.handler()(lambda _: None)
    worker = Worker(engine, queue)
    first = threading.Thread(target=worker.run, daemon=True)
    first.start()
    send(engine, queue, 1)
    until(lambda: is_empty(database), "it works")
    with pytest.raises(WorkerError, match="runs already"):
        worker.run()
    worker.stop()
    first.join(PATIENCE.total_seconds())
    assert not first.is_alive()


def test_an_interrupted_stop(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt during a stop ends the patience, not the stop: what was at work is given back."""
    go, started = threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        started.set()
        until(go.is_set, "it may end")

    send(engine, queue, 1)
    worker = start(queue, concurrency=1)
    until(started.is_set, "it is at work")
    assert isinstance(worker._executor, ThreadExecutor)
    handlers = worker._executor._threads

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(handlers[0], "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.stop()
    assert database.value("select count(*) from fq_message where lease_id is null and attempts = 0") == 1
    go.set()
    until(lambda: not threads_of(worker.name), "all threads have ended")


@pytest.fixture
def no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third thread of a worker cannot be started."""
    original = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name.endswith("-heartbeat"):
            raise RuntimeError("can't start new thread")
        original(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)


@pytest.mark.usefixtures("no_heartbeats")
def test_too_manythreads_of(queue: Queue, engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that cannot start all of its threads leaves none, and can be started later."""
    queue.handler()(lambda _: None)
    worker = Worker(engine, queue)
    with pytest.raises(RuntimeError, match="new thread"):
        worker.start()
    until(lambda: not threads_of(worker.name), "none is left")
    monkeypatch.undo()
    send(engine, queue, 1)
    with worker:
        until(lambda: is_empty(database), "it can be started later")


@pytest.mark.usefixtures("no_heartbeats")
async def test_too_many_threads_in_a_loop(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does an AsyncWorker: what is there when it fails is not handled by a worker without a heartbeat."""
    later = threading.Event()
    called: list[bool] = []
    queue.handler()(lambda _: called.append(later.is_set()))
    send(engine, queue, 1)
    worker = AsyncWorker(async_engine, queue)
    with pytest.raises(RuntimeError, match="new thread"):
        await worker.start()
    await auntil(lambda: not threads_of(worker.name), "none is left")
    monkeypatch.undo()
    later.set()
    async with worker:
        await auntil(lambda: is_empty(database), "it can be started later")
    assert called == [True]


def test_cancelled_before_it_begins(
    queue: Queue,
    engine: Engine,
    database: Database,
    start: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message that was withdrawn while it waited for a handler is not begun, and is counted."""
    # However slow the machine is, some are taken ahead, and wait.
    monkeypatch.setattr(Prefetch, "ahead", lambda *_: 2)
    seen: list[object] = []

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        seen.append(delivery.payload)
        until(lambda: worker.stats.cancelled == 3, "it may end")

    worker = start(queue, concurrency=1, lease=LONG_LEASE, timings={**MANY_HEARTBEATS, "stale_after": 100.0})
    ids = send(engine, queue, *["slow"] * 3)
    until(lambda: worker.stats.taken == 3, "all are taken")
    for message_id in ids:
        queue.cancel(engine, message_id)
    until(lambda: is_empty(database), "all are gone")
    assert seen == ["slow"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_an_impatient_second_stop(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, *, reentrant: bool
) -> None:
    """A second stop without grace ends a first one's patience: another thread's, and a signal handler's in its own."""
    started, go, stopping = threading.Event(), threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery, context: Context) -> None:
        started.set()
        until(lambda: context.stopping, "the first stop is under way")
        stopping.set()
        go.wait()

    worker = start(queue, concurrency=1)
    try:
        send(engine, queue, 1)
        assert started.wait(PATIENCE.total_seconds())
        if reentrant:

            def impatient(*_: object) -> None:
                worker.stop(timedelta())

            def interrupt() -> None:
                assert stopping.wait(PATIENCE.total_seconds())
                os.kill(os.getpid(), signal.SIGUSR1)

            before = signal.signal(signal.SIGUSR1, impatient)
            sender = threading.Thread(target=interrupt)
            sender.start()
            try:
                worker.stop(timedelta(hours=1))
            finally:
                sender.join()
                signal.signal(signal.SIGUSR1, before)
        else:
            first = threading.Thread(target=worker.stop, args=(timedelta(hours=1),))
            first.start()
            assert stopping.wait(PATIENCE.total_seconds())
            worker.stop(timedelta())
            first.join(PATIENCE.total_seconds())
            assert not first.is_alive()
        assert (worker.stats.completed, worker.stats.released) == (0, 1)
        assert not is_empty(database)
    finally:
        go.set()
