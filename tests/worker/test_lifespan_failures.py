"""Functions around the life of a worker that fail, and workers that stop in the middle of it."""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from sqlalchemy_fairqueue.errors import StartError
from tests.worker.conftest import StartWorker
from tests.worker.helpers import Busy, drained, send
from tests.worker.lifespans import STARTED, STOPPED, Client, Steps, declare


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


def test_another_queue_that_cannot_start(handled: Queue, engine: Engine) -> None:
    """What the queues before have started is stopped, their on_stop functions included."""
    steps: Steps = []
    declare(handled, steps)
    other = Queue("other")

    @other.on_start
    def empty() -> Iterator[None]:
        yield from ()

    @other.on_stop
    def never() -> None:
        steps.append("never")

    other.handler()(print)
    with pytest.raises(StartError, match=r"'empty' of queue 'other' failed.*did not yield"):
        Worker(engine, handled, other).start()
    assert steps == [*STARTED, *STOPPED]


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
        assert steps == [*STARTED, *STOPPED] * 2
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert [f"{record.exc_info and record.exc_info[1]}" for record in errors] == [f"no {failing}"] * 2
        assert all("documents" in record.getMessage() for record in errors)


def test_a_second_yield(handled: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """What follows it does not run, and the log says so."""
    steps: Steps = []

    @handled.on_start
    def twice() -> Iterator[int]:
        try:
            yield 1
            yield 2
            steps.append("never")
        finally:
            steps.append("closed")

    drained(engine, handled)
    assert steps == ["closed"]
    assert "yielded a second time" in caplog.text


def test_handlers_left_behind(queue: Queue, engine: Engine, start: StartWorker, busy: Busy) -> None:
    """When the grace is over, resources are closed though a handler still runs."""
    steps: Steps = []
    declare(queue, steps)
    queue.handler(busy)
    send(engine, queue, 1)
    worker = start(queue)
    busy.begun()
    assert steps == STARTED
    worker.stop(timedelta())
    assert steps == [*STARTED, *STOPPED]


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
    assert steps == [*STARTED, "handled", *STOPPED]


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


async def test_a_start_that_is_cancelled(handled: Queue, async_engine: AsyncEngine) -> None:
    """What had been started is stopped before the cancelled start returns."""
    steps: Steps = []
    declare(handled, steps)
    begun = asyncio.Event()

    @handled.on_start
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    worker = AsyncWorker(async_engine, handled)
    starting = asyncio.create_task(worker.start())
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert steps == [*STARTED, "client closed"]
