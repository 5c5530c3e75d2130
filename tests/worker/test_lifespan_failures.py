"""Functions around the life of a worker that fail, and workers that stop in the middle of it."""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from sqlalchemy_fairqueue.errors import StartError
from tests.worker.helpers import send
from tests.worker.lifespans import Client, Steps, declare


async def test_a_failing_start(engine: Engine, async_engine: AsyncEngine) -> None:
    """It ends the start with the function and its error, and takes no message; what was started is stopped."""
    for failing, expected in (("settings", ["settings"]), ("client of x", ["settings", "client of x"])):
        queue, steps = Queue("documents"), Steps()
        declare(queue, steps, failing=failing)
        queue.handler()(lambda _: steps.append("handled"))  # noqa: B023
        send(engine, queue, 1)
        worker, async_worker = Worker(engine, queue), AsyncWorker(async_engine, queue)
        for start in partial(asyncio.to_thread, worker.run), async_worker.run:
            with pytest.raises(StartError, match=f"of queue 'documents' failed.*OSError: no {failing}") as caught:
                await start(drain=True)
            assert isinstance(caught.value.__cause__, OSError)
            assert caught.value.function == expected[-1].partition(" ")[0]
            assert steps == expected
            steps.clear()
    assert Queue("documents").stats(engine).ready == 2


def test_another_queue_that_cannot_start(queue: Queue, engine: Engine) -> None:
    """What the queues before have started is stopped, their on_stop functions included."""
    steps: Steps = []
    declare(queue, steps)
    other = Queue("other")

    @other.on_start
    def empty() -> Iterator[None]:
        yield from ()

    @other.on_stop
    def never() -> None:
        steps.append("never")

    for one in queue, other:
        one.handler()(print)
    with pytest.raises(StartError, match=r"'empty' of queue 'other' failed.*did not yield"):
        Worker(engine, queue, other).start()
    assert steps == ["settings", "client of x", "say", "flush x", "client closed"]


async def test_a_failing_stop(async_engine: AsyncEngine, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with its traceback, and the others still run."""
    for failing in ("say", "flush x", "client closed"):
        caplog.clear()
        queue, steps = Queue("documents"), Steps()
        declare(queue, steps, failing=failing)
        queue.handler()(print)
        with Worker(engine, queue, housekeeping=False):
            pass
        async with AsyncWorker(async_engine, queue, housekeeping=False):
            pass
        assert steps == ["settings", "client of x", "say", "flush x", "client closed"] * 2
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert [f"{record.exc_info and record.exc_info[1]}" for record in errors] == [f"no {failing}"] * 2
        assert all("documents" in record.getMessage() for record in errors)


def test_a_second_yield(queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """What follows it does not run, and the log says so."""
    steps: Steps = []

    @queue.on_start
    def twice() -> Iterator[int]:
        try:
            yield 1
            yield 2
            steps.append("never")
        finally:
            steps.append("closed")

    queue.handler()(print)
    with Worker(engine, queue, housekeeping=False):
        pass
    assert steps == ["closed"]
    assert "yielded a second time" in caplog.text


def test_handlers_left_behind(queue: Queue, engine: Engine) -> None:
    """When the grace is over, resources are closed though a handler still runs."""
    begun, closed = threading.Event(), threading.Event()

    @queue.on_start
    def client() -> Iterator[Client]:
        yield Client()
        closed.set()

    @queue.handler
    def handle(_: Delivery) -> None:
        begun.set()
        assert closed.wait(60)

    send(engine, queue, 1)
    worker = Worker(engine, queue, housekeeping=False)
    worker.start()
    assert begun.wait(60)
    assert not closed.is_set()
    worker.stop(timedelta())
    assert closed.is_set()


async def test_a_worker_that_its_handler_stops(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """The resources are closed when the handler has finished."""
    steps: Steps = []
    declare(queue, steps)

    @queue.handler
    async def handle(_: Delivery) -> None:
        await worker.stop()
        steps.append("handled")

    send(engine, queue, 1)
    worker = AsyncWorker(async_engine, queue, housekeeping=False)
    await worker.run()
    assert steps == ["settings", "client of x", "handled", "say", "flush x", "client closed"]


@pytest.mark.parametrize("how", ["stopped", "cancelled", "left"])
def test_a_loop_that_ends(queue: Queue, engine: Engine, async_engine: AsyncEngine, how: str) -> None:
    """However the loop ends, the handler at work is ended first, and then the resources are closed in their task."""
    steps: Steps = []
    variable = contextvars.ContextVar[str]("variable")

    @queue.on_start
    async def client() -> AsyncIterator[Client]:
        token = variable.set("kept")
        yield Client()
        # Refused in another task's context.
        variable.reset(token)
        steps.append("closed")

    @queue.handler
    async def handle(_: Delivery) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("ended")

    async def main() -> None:
        worker = AsyncWorker(async_engine, queue, housekeeping=False)
        running = asyncio.create_task(worker.run() if how == "cancelled" else worker.start())
        await begun.wait()
        if how == "stopped":
            await worker.stop(timedelta())
        elif how == "cancelled":
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    send(engine, queue, 1)
    begun = asyncio.Event()
    asyncio.run(main())
    assert steps == ["ended", "closed"]
    assert queue.stats(engine).leased == 0


async def test_a_start_that_is_cancelled(queue: Queue, async_engine: AsyncEngine) -> None:
    """What had been started is stopped before the cancelled start returns."""
    steps: Steps = []
    declare(queue, steps)
    begun = asyncio.Event()

    @queue.on_start
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    queue.handler()(print)
    worker = AsyncWorker(async_engine, queue)
    starting = asyncio.create_task(worker.start())
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert steps == ["settings", "client of x", "client closed"]
