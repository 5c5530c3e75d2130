"""Stops of an AsyncWorker: early, twice, cancelled, from another loop, by the end of the program."""

import asyncio
import gc
import os
import signal
import threading
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, InvalidArgument, Queue, RetryPolicy
from sqlalchemy_fairqueue.worker.executor import TaskExecutor
from sqlalchemy_fairqueue.worker.runtime import Runtime
from tests.fixtures.database import Database
from tests.fixtures.drivers import async_url
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import MakeWorker
from tests.worker.helpers import (
    LONG_LEASE,
    MANY_HEARTBEATS,
    Busy,
    auntil,
    call,
    given_back,
    is_empty,
    retimed,
    send,
    threads_of,
    until,
)

_LONG = timedelta(hours=1)
_PATIENCE = PATIENCE.total_seconds()


@pytest.fixture
def working(queue: Queue, engine: Engine) -> asyncio.Event:
    """Set when the queue's handler is at work on its one message, which it never ends."""
    started = asyncio.Event()

    @queue.handler(retry=RetryPolicy(max_attempts=1))
    async def handle(_: Delivery) -> None:
        started.set()
        await asyncio.Event().wait()

    send(engine, queue, 1)
    return started


def test_the_end_of_the_program(queue: Queue, engine: Engine, database: Database, working: asyncio.Event) -> None:
    """asyncio.run cancels all tasks at its end, handlers too: they are given back, uncounted."""

    async def main() -> asyncio.Task[None]:
        running = asyncio.create_task(AsyncWorker(create_async_engine(async_url(engine.url)), queue).run())
        await working.wait()
        return running

    assert asyncio.run(main()).cancelled()
    assert given_back(database) == 1
    assert list(queue.dead_letters.list(engine)) == []


async def test_a_handler_that_cancels_itself(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """It does not go round for ever: after some uncounted attempts they count, and it is a dead letter."""

    @queue.handler(retry=RetryPolicy(max_attempts=2, first=timedelta()))
    async def handle(_: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    send(engine, queue, 1)
    async with AsyncWorker(async_engine, queue):
        await auntil(lambda: is_empty(database), "it has an end")
    [letter] = queue.dead_letters.list(engine)
    assert (letter.reason, letter.attempts) == ("attempts exhausted: the policy's limit is 2", 2)


async def test_a_bad_grace(handled: Queue, make: MakeWorker) -> None:
    """It is refused, and the worker is as it was."""
    worker = make(handled)
    await call(worker.start)
    for bad in (5, timedelta(seconds=-1)):
        with pytest.raises(InvalidArgument, match="grace is"):
            await call(worker.stop, bad)
        assert threads_of(worker.name)
    await call(worker.stop)
    assert not threads_of(worker.name)


@pytest.mark.parametrize(("elsewhere", "early"), [(False, True), (True, True), (True, False)])
async def test_wherever_it_is_asked_for(
    handled: Queue, async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool, early: bool
) -> None:
    """A stop is not forgotten that comes while the worker starts; one of another thread's loop is done in its own."""
    asked, check = threading.Event(), Runtime.check

    def check_late(runtime: Runtime) -> None:
        asked.wait()
        check(runtime)

    if early:
        monkeypatch.setattr(Runtime, "check", check_late)
    worker = AsyncWorker(async_engine, handled)
    running = asyncio.create_task(worker.run())
    await auntil(lambda: worker._life if early else worker._runtime, "it starts")

    async def stop() -> None:
        stopping = asyncio.ensure_future(worker.stop())
        await asyncio.sleep(0)
        asked.set()
        await stopping

    await asyncio.wait_for(asyncio.to_thread(lambda: asyncio.run(stop())) if elsewhere else stop(), _PATIENCE)
    await asyncio.wait_for(running, _PATIENCE)
    assert not threads_of(worker.name)


@pytest.mark.parametrize("by_signal", [True, False], ids=["stop after a signal", "cancel after a stop"])
async def test_an_impatient_second_stop(
    queue: Queue, async_engine: AsyncEngine, database: Database, working: asyncio.Event, *, by_signal: bool
) -> None:
    """A second stop without grace, and a cancellation of run, end a first one's patience, whoever asked for that."""
    worker = AsyncWorker(async_engine, queue, grace=_LONG)
    running = asyncio.create_task(worker.run(handle_signals=True))
    await working.wait()
    first = None if by_signal else asyncio.create_task(worker.stop())
    if by_signal:
        os.kill(os.getpid(), signal.SIGTERM)
    await auntil(lambda: worker._executor and worker._executor._stopping.is_set(), "it waits for the handler")
    if first is None:
        await worker.stop(timedelta())
    else:
        running.cancel()
    await asyncio.wait([running], timeout=_PATIENCE)
    assert running.cancelled() == (not by_signal)
    if first is not None:
        await first
    assert given_back(database) == 1
    assert not threads_of(worker.name)


async def test_by_a_handler_and_what_it_has_started(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """A handler that stops its worker, its own tasks, and plain functions do not wait for its end: it ends as ever."""
    loop = asyncio.get_running_loop()

    @queue.handler("itself")
    async def handle(_: Delivery) -> None:
        await worker.stop()
        await worker.stop()

    @queue.handler("group")
    async def handle_by_group(_: Delivery) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.stop())

    @queue.handler("thread")
    def handle_in_thread(_: Delivery) -> None:
        asyncio.run_coroutine_threadsafe(worker.stop(), loop).result(_PATIENCE)

    for kind in ("itself", "group", "thread"):
        worker = AsyncWorker(async_engine, queue, grace=_LONG)
        send(engine, queue, 1, kind=kind)
        await asyncio.wait_for(worker.run(), _PATIENCE)
        assert is_empty(database), kind
        assert worker.stats.completed == 1, kind


async def test_impatience_while_a_dequeue_is_waited_for(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """A stop without grace that comes while the database keeps the first one waiting shortens that, too."""
    queue.handler()(lambda _: None)
    worker = AsyncWorker(async_engine, queue, grace=_LONG, poll_interval=timedelta(milliseconds=10), listen=False)
    running = asyncio.create_task(worker.run())
    await auntil(lambda: worker._runtime is not None, "it works")
    with engine.connect() as holder:
        holder.execute(text("lock table fq_queue in access exclusive mode"))
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%fq_dequeue%'"
        await auntil(lambda: database.value(waits), "it waits for the queue")
        first = asyncio.create_task(worker.stop())
        await auntil(lambda: worker._runtime is None, "it stops")
        await worker.stop(timedelta())
        holder.rollback()
    await asyncio.wait_for(asyncio.gather(first, running), _PATIENCE)


async def test_what_swallowed_a_cancellation(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """A handler that went on after its message was cancelled is cancelled once more when the worker stops."""
    reasons: list[str] = []
    told: list[bool] = []

    @queue.handler()
    async def handle(_: Delivery, context: Context) -> None:
        started.set()
        while len(reasons) < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                told.append(context.cancelled)
                reasons.append(str(error))

    started = asyncio.Event()
    [message_id] = send(engine, queue, 1)
    async with retimed(AsyncWorker(async_engine, queue, lease=LONG_LEASE), **MANY_HEARTBEATS) as worker:
        await started.wait()
        queue.cancel(engine, message_id)
        await auntil(lambda: reasons, "it is told")
        await worker.stop(timedelta())
    assert reasons == ["its message was cancelled", "the worker stops"]
    assert told[0]
    assert is_empty(database)


async def test_cancelled_once(queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """What tidies up after a cancellation is not cancelled again, however often its lost lease is told."""
    seen: list[bool] = []
    tidy: list[bool] = []

    @queue.handler()
    async def handle(_: Delivery, context: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert isinstance(worker._executor, TaskExecutor)
            for _check in range(3):
                for held in worker._executor._tasks:
                    worker._executor._cancel(held)
                seen.append(context.lost)
                await asyncio.sleep(0)
            tidy.append(True)

    started = asyncio.Event()
    worker = retimed(AsyncWorker(async_engine, queue), cleanup=_PATIENCE)
    send(engine, queue, 1)
    await worker.start()
    await started.wait()
    await worker.stop(timedelta())
    assert (seen, tidy) == ([True] * 3, [True])
    assert given_back(database) == 1


async def test_handlers_are_told_before_anything_is_waited_for(
    queue: Queue, engine: Engine, make: MakeWorker, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the database keeps the stop waiting."""
    told: list[bool] = []
    stop_fetching = Runtime.stop_fetching

    def read_first(runtime: Runtime) -> None:
        told.extend(context.stopping for context in busy.contexts)
        busy.go.set()
        stop_fetching(runtime)

    monkeypatch.setattr(Runtime, "stop_fetching", read_first)
    queue.handler()(busy)
    send(engine, queue, 1)
    worker = make(queue)
    await call(worker.start)
    await auntil(lambda: busy.contexts, "it is at work")
    await call(worker.stop)
    assert told == [True]


async def test_a_stop_that_is_cancelled(queue: Queue, engine: Engine, async_engine: AsyncEngine, busy: Busy) -> None:
    """Who cancels a stop does not wait for its end, but it comes: nothing of the worker is left."""
    queue.handler()(busy)
    worker = AsyncWorker(async_engine, queue)
    await worker.start()
    send(engine, queue, 1)
    await auntil(lambda: busy.contexts, "it is at work")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.stop(), 0.05)
    busy.go.set()
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
    until(lambda: given_back(database) == 1, "it is given back")
    until(lambda: not threads_of(worker.name), "its threads have ended")
    forever[0] = False
    asyncio.run(finish())
    # The handler's coroutine is closed by whoever forgets it.
    gc.collect()
    assert "failed at attempt" not in caplog.text
