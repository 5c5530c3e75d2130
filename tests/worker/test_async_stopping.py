"""Stops of an AsyncWorker: early, twice, cancelled, from another loop, by the end of the program."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, InvalidArgument, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.worker.executor import TaskExecutor
from sqlalchemy_fairqueue.worker.runtime import Runtime
from tests.fixtures.database import Database
from tests.fixtures.drivers import async_url
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, auntil, is_empty, retimed, send, threads_of, until

_LONG = timedelta(hours=1)
_GIVEN_BACK = "select count(*) from fq_message where lease_id is null and attempts = 0"


@pytest.fixture
def working(queue: Queue, engine: Engine) -> asyncio.Event:
    """Set when the queue's handler is at work on its one message, which it never ends."""
    started = asyncio.Event()

    @queue.handler()
    async def handle(_: Delivery) -> None:
        started.set()
        await asyncio.Event().wait()

    send(engine, queue, 1)
    return started


def test_the_end_of_the_program(queue: Queue, engine: Engine, database: Database) -> None:
    """asyncio.run cancels all tasks at its end, handlers too: they are given back, uncounted."""
    started = asyncio.Event()

    @queue.handler(retry=RetryPolicy(max_attempts=1))
    async def handle(_: Delivery) -> None:
        started.set()
        await asyncio.Event().wait()

    async def main() -> asyncio.Task[None]:
        running = asyncio.create_task(AsyncWorker(create_async_engine(async_url(engine.url)), queue).run())
        await started.wait()
        return running

    send(engine, queue, 1)
    assert asyncio.run(main()).cancelled()
    assert database.value(_GIVEN_BACK) == 1
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


async def test_a_bad_grace(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """It is refused, and the worker is as it was."""
    queue.handler()(lambda _: None)
    worker = AsyncWorker(async_engine, queue)
    await worker.start()
    bad: Any
    for bad in (5, timedelta(seconds=-1)):
        with pytest.raises(InvalidArgument, match="grace is"):
            await worker.stop(bad)
        assert threads_of(worker.name)
    await worker.stop()
    assert not threads_of(worker.name)
    with Worker(engine, queue) as plain:
        with pytest.raises(InvalidArgument, match="grace is 5; give a timedelta"):
            plain.stop(5)  # type: ignore[arg-type]  # that is the point
        assert threads_of(plain.name)


async def test_before_it_has_started(queue: Queue, async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that comes while the worker starts is not forgotten: run returns."""
    queue.handler()(lambda _: None)
    checking, go = threading.Event(), threading.Event()
    check = Runtime.check

    def check_slowly(runtime: Runtime) -> None:
        checking.set()
        go.wait()
        check(runtime)

    monkeypatch.setattr(Runtime, "check", check_slowly)
    worker = AsyncWorker(async_engine, queue)
    running = asyncio.create_task(worker.run())
    await auntil(checking.is_set, "it starts")
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait_for(asyncio.gather(stopping, running), PATIENCE.total_seconds())
    assert not threads_of(worker.name)


async def _stop_again(worker: AsyncWorker, _: "asyncio.Task[None]") -> None:
    await worker.stop(timedelta())


async def _cancel_run(_: AsyncWorker, running: "asyncio.Task[None]") -> None:
    running.cancel()


@pytest.mark.parametrize(
    ("hurry", "by_signal"),
    [(_stop_again, True), (_cancel_run, False)],
    ids=["stop after a signal", "cancel after a stop"],
)
async def test_an_impatient_second_stop(
    queue: Queue,
    async_engine: AsyncEngine,
    database: Database,
    working: asyncio.Event,
    hurry: Callable[[AsyncWorker, "asyncio.Task[None]"], Awaitable[None]],
    *,
    by_signal: bool,
) -> None:
    """A second stop without grace, and a cancellation of run, end a first one's patience, whoever asked for that."""
    worker = AsyncWorker(async_engine, queue, grace=_LONG)
    running = asyncio.create_task(worker.run(handle_signals=True))
    await working.wait()
    first = None
    if by_signal:
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        first = asyncio.create_task(worker.stop())
    await auntil(
        lambda: worker._executor is not None and worker._executor._stopping.is_set(),
        "it waits for the handler",
    )
    await hurry(worker, running)
    await asyncio.wait([running], timeout=PATIENCE.total_seconds())
    assert running.cancelled() == (hurry is _cancel_run)
    if first is not None:
        await first
    assert database.value(_GIVEN_BACK) == 1
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
        asyncio.run_coroutine_threadsafe(worker.stop(), loop).result(PATIENCE.total_seconds())

    for kind in ("itself", "group", "thread"):
        worker = AsyncWorker(async_engine, queue, grace=_LONG)
        send(engine, queue, 1, kind=kind)
        await asyncio.wait_for(worker.run(), PATIENCE.total_seconds())
        assert is_empty(database), kind
        assert worker.stats.completed == 1, kind


@pytest.mark.parametrize("early", [False, True])
async def test_from_another_loop(
    queue: Queue, async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    """A stop that is asked for in another thread's loop is done in the worker's, and run returns; as it starts, too."""
    queue.handler()(lambda _: None)
    asked = threading.Event()
    check = Runtime.check

    def check_late(runtime: Runtime) -> None:
        asked.wait()
        check(runtime)

    if early:
        monkeypatch.setattr(Runtime, "check", check_late)
    worker = AsyncWorker(async_engine, queue)
    running = asyncio.create_task(worker.run())
    await auntil(lambda: worker._life if early else worker._runtime, "it starts")

    async def stop() -> None:
        stopping = asyncio.ensure_future(worker.stop())
        await asyncio.sleep(0)
        asked.set()
        await stopping

    await asyncio.wait_for(asyncio.to_thread(lambda: asyncio.run(stop())), PATIENCE.total_seconds())
    await asyncio.wait_for(running, PATIENCE.total_seconds())


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
    await asyncio.wait_for(asyncio.gather(first, running), PATIENCE.total_seconds())


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
    worker = retimed(AsyncWorker(async_engine, queue), cleanup=PATIENCE.total_seconds())
    send(engine, queue, 1)
    await worker.start()
    await started.wait()
    await worker.stop(timedelta())
    assert (seen, tidy) == ([True] * 3, [True])
    assert database.value(_GIVEN_BACK) == 1


@pytest.mark.parametrize("kind", [Worker, AsyncWorker])
def test_handlers_are_told_before_anything_is_waited_for(
    queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: type[Worker | AsyncWorker]
) -> None:
    """Also while the database keeps the stop waiting."""
    told: list[bool] = []
    contexts: list[Context] = []
    stop_fetching = Runtime.stop_fetching

    def read_first(runtime: Runtime) -> None:
        told.extend(context.stopping for context in contexts)
        go.set()
        stop_fetching(runtime)

    monkeypatch.setattr(Runtime, "stop_fetching", read_first)
    started, go = threading.Event(), threading.Event()

    def handle(_: Delivery, context: Context) -> None:
        contexts.append(context)
        started.set()
        go.wait()

    queue.handler()(handle)
    send(engine, queue, 1)
    if kind is Worker:
        with Worker(engine, queue):
            until(started.is_set, "it is at work")
    else:

        async def work() -> None:
            async with AsyncWorker(create_async_engine(async_url(engine.url)), queue):
                await auntil(started.is_set, "it is at work")

        asyncio.run(work())
    assert told == [True]


@pytest.mark.parametrize("kind", [Worker, AsyncWorker])
def test_signal_handlers_come_back(queue: Queue, engine: Engine, kind: type[Worker | AsyncWorker]) -> None:
    """After run the program's own handlers are back, and a loop's own work while it runs."""
    queue.handler()(lambda _: None)
    heard: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    async def run() -> None:
        own = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, own.set)
        inside = signal.getsignal(signal.SIGINT)
        running = asyncio.create_task(worker.run(handle_signals=True))
        await auntil(lambda: worker._runtime is not None, "it works")
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(own.wait(), PATIENCE.total_seconds())
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, PATIENCE.total_seconds())
        assert signal.getsignal(signal.SIGINT) is inside
        assert signal.getsignal(signal.SIGTERM) is mine
        assert heard == []
        own.clear()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(own.wait(), PATIENCE.total_seconds())

    try:
        signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
        mine = signal.getsignal(signal.SIGTERM)
        if kind is Worker:
            Worker(engine, queue).run(handle_signals=True, drain=True)
        else:
            worker = AsyncWorker(create_async_engine(async_url(engine.url)), queue)
            asyncio.run(run())
        assert signal.getsignal(signal.SIGTERM) is mine
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: heard == [signal.SIGTERM], "it is heard")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("first_ends", [False, True])
def test_a_signal_for_two_workers(engine: Engine, *, first_ends: bool) -> None:
    """One signal stops both; whichever has ended before, then the program's own handler is back."""
    queues = Queue("documents"), Queue("mails")
    for queue in queues:
        queue.handler()(lambda _: None)
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    own = signal.getsignal(signal.SIGTERM)

    async def run() -> None:
        made = create_async_engine(async_url(engine.url))
        workers = [AsyncWorker(made, queue) for queue in queues]
        running = [asyncio.create_task(worker.run(handle_signals=True)) for worker in workers]
        await auntil(lambda: all(worker._runtime is not None for worker in workers), "both work")
        if first_ends:
            await workers[0].stop()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*running), PATIENCE.total_seconds())
        await made.dispose()

    try:
        asyncio.run(run())
        assert signal.getsignal(signal.SIGTERM) is own
        assert heard == []
    finally:
        signal.signal(signal.SIGTERM, before)
