"""Functions around the life of a worker, and the resources that they give to handlers."""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.errors import StartError, WorkerError
from sqlalchemy_fairqueue.testing import drain, inline, perform, rolled_back
from tests.worker.conftest import StartWorker
from tests.worker.helpers import Busy, drained, send
from tests.worker.isolated import say_pid

Steps = list[str]
STARTED = ["settings", "client of x"]
STOPPED = ["say", "flush x", "client closed"]
"""What is noted of a start and a stop."""


class Client:
    """A resource."""

    def __init__(self, name: str = "client") -> None:
        self.name = name


def declare(queue: Queue, steps: Steps, *, failing: str = "") -> None:
    """Two resources of which the second takes the first, and a function for the stop."""

    def note(step: str) -> None:
        steps.append(step)
        if step == failing:
            raise OSError(f"no {step}")

    @queue.on_start
    def settings() -> str:
        note("settings")
        return "x"

    @queue.on_start
    def client(settings: str) -> Iterator[Client]:
        note(f"client of {settings}")
        try:
            yield Client(settings)
        finally:
            note("client closed")

    @queue.on_stop
    def flush(client: Client) -> None:
        note(f"flush {client.name}")

    @queue.on_stop
    def say() -> None:
        note("say")


def test_the_order(queue: Queue, engine: Engine) -> None:
    """Resources are made in the order of declaration and closed in reverse, around the handlers of each start."""
    steps: Steps = []
    declare(queue, steps)
    queue.handler(lambda delivery, client: steps.append(f"handle {delivery.payload} with {client.name}"))
    worker = Worker(engine, queue, housekeeping=False)
    assert steps == []
    for payload in 1, 2:
        send(engine, queue, payload)
        worker.run(drain=True)
        assert steps == [*STARTED, f"handle {payload} with x", *STOPPED]
        steps.clear()


async def test_in_an_event_loop(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """Async functions share a task, as what they open may need; plain ones run in threads."""
    steps: Steps = []
    tasks = []

    @queue.on_start
    async def first() -> AsyncIterator[Client]:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(None), asyncio.TaskGroup():
            yield Client("first")
            steps.append("first closed")

    @queue.on_start
    def plain(first: Client) -> Iterator[int]:
        steps.append(f"plain of {first.name}")
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        yield 7
        steps.append("plain closed")

    @queue.on_start
    async def second() -> str:
        tasks.append(asyncio.current_task())
        return "second"

    @queue.on_stop
    async def last(second: str) -> None:
        tasks.append(asyncio.current_task())
        steps.append(f"last of {second}")

    @queue.handler
    async def handle(_: Delivery, first: Client, plain: int, session: AsyncSession) -> None:
        await session.execute(text("select 1"))
        steps.append(f"handle with {first.name}, {plain}")

    @queue.handler("plain")
    def handle_plain(_: Delivery, second: str) -> None:
        steps.append(f"handle with {second}")

    worker = AsyncWorker(async_engine, queue, housekeeping=False)
    send(engine, queue, 1)
    await worker.run(drain=True)
    send(engine, queue, 2, kind="plain")
    await worker.run(drain=True)
    around = ["plain of first"], ["last of second", "plain closed", "first closed"]
    assert steps == [
        *around[0], "handle with first, 7", *around[1], *around[0], "handle with second", *around[1],
    ]  # fmt: skip
    assert len(tasks) == 6
    assert len(set(tasks)) == 2
    assert asyncio.current_task() not in tasks


def test_by_annotation(queue: Queue, engine: Engine) -> None:
    """A parameter without a default gets the resource of its type, whatever its name is; one with a default by name."""
    seen: list[Any] = []

    @queue.on_start
    def made() -> Iterator[Client]:
        yield Client("made")

    @queue.on_start
    def number() -> int:
        return 7

    @queue.on_stop
    def see(those: Client) -> None:
        seen.append(those.name)

    @queue.handler
    def handle(_: Delivery, http: "Client", retries: int = 3, number: int = 4, *, context: Context) -> None:
        seen.extend([http.name, retries, number, dict(context.resources), context.resource(Client) is http])

    send(engine, queue, 1)
    drained(engine, queue)
    assert seen[:3] == ["made", 3, 7]
    assert set(seen[3]) == {"made", "number"}
    assert seen[4:] == [True, "made"]


def test_jobs_and_middleware(queue: Queue, engine: Engine) -> None:
    """A job's parameters are its payload's, so that it asks its context, as a middleware does."""
    seen: list[Any] = []

    @queue.on_start
    def client() -> Client:
        return Client()

    @queue.middleware
    def around(context: Context, proceed: Callable[[], Any]) -> Any:
        seen.append(context.resources["client"])
        return proceed()

    @queue.job
    def parse(context: Context, *, client: str) -> None:
        seen.extend([client, context.resource(Client)])
        with pytest.raises(InvalidArgument, match=r"no single resource is a int; there are: client"):
            context.resource(int)
        with pytest.raises(InvalidArgument, match=r"several are: "):
            Context(context._held, None, {"a": 1, "b": 2}).resource(int)

    parse.enqueue(engine, channel="a", client="payload")
    drained(engine, queue)
    assert seen[0] is seen[2]
    assert seen[1] == "payload"


def test_several_queues(engine: Engine) -> None:
    """The queues of one worker keep their resources apart, and share the functions that both declare."""
    steps: Steps = []

    def shared() -> Iterator[Client]:
        steps.append("shared")
        yield Client()
        steps.append("shared closed")

    seen: list[tuple[str, Client]] = []
    queues = [Queue("first"), Queue("second")]
    for queue in queues:
        queue.on_start(shared)

        @queue.on_start
        def own(shared: Client, name: str = queue.name) -> str:
            assert isinstance(shared, Client)
            steps.append(name)
            return name

        queue.handler(lambda _, shared, own: seen.append((own, shared)))
        send(engine, queue, 1)
    drained(engine, *queues)
    assert steps == ["shared", "first", "second", "shared closed"]
    assert sorted(own for own, _ in seen) == ["first", "second"]
    assert len({id(shared) for _, shared in seen}) == 1


def test_async_functions_need_a_loop(handled: Queue, engine: Engine) -> None:
    """A worker of threads refuses async functions before it starts anything."""

    @handled.on_start
    async def client() -> Client:
        raise AssertionError

    with pytest.raises(WorkerError, match=r"'client' .* is async, and this worker has no event loop"):
        Worker(engine, handled).start()


def test_refused(queue: Queue) -> None:
    """What no worker could call is refused where it is declared."""

    @queue.on_start
    def number() -> int:
        return 1

    @queue.on_start
    def other() -> int:
        return 2

    def session() -> int:
        return 3

    def stray(unknown: str) -> None: ...

    def yielding() -> Iterator[int]:
        yield 1

    def two(_: Delivery, which: int) -> None: ...

    def unknown(_: Delivery, thing: object) -> None: ...

    refused: list[tuple[Callable[[Any], Any], Any, str]] = [
        (queue.on_start, number, "has a resource 'number' already"),
        (queue.on_start, session, "handlers use for something else"),
        (queue.on_start, stray, r"takes 'unknown: str', which is no resource; .*: number, other"),
        *((queue.on_start, nameless, "give a function that has a name") for nameless in (lambda: 1, Client)),
        (queue.on_start, contextlib.contextmanager(yielding), "leave out @contextmanager"),
        (queue.on_stop, yielding, "do not yield"),
        (queue.on_stop, stray, "no resource"),
        (queue.handler(), two, "may be any of the resources number, other"),
        (queue.handler(), unknown, "declared before it: number, other"),
        (queue.handler(isolation="process"), _takes_number, "a resource cannot leave its process"),
    ]
    for decorate, function, words in refused:
        with pytest.raises(InvalidArgument, match=words):
            decorate(function)
    queue.handler("isolated", isolation="process")(say_pid)


def _takes_number(delivery: Delivery, number: int) -> None: ...


def test_in_tests(queue: Queue, engine: Engine) -> None:
    """perform, drain and inline take resources in place of those that a worker makes."""
    seen = []

    @queue.on_start
    def client() -> Client:
        raise AssertionError

    queue.handler(lambda _, client: seen.append(client.name))
    assert perform(queue, 1, resources={"client": Client("performed")}) is None
    with pytest.raises(InvalidArgument, match=r"takes the resource 'client'; call perform or drain with resources="):
        perform(queue, 1)
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        drain(session, queue, resources={"client": Client("drained")})
    with rolled_back(engine) as session, inline(session, queue, resources={"client": Client("inline")}):
        queue.enqueue(session, channel="a", payload=1)
        session.commit()
    assert seen == ["performed", "drained", "inline"]


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
