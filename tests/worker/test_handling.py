"""Functions that may be handlers, and those that may not."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, InvalidArgument, Queue, SchemaMismatch, Worker
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.worker.runtime import Runtime
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import StartWorker
from tests.worker.helpers import auntil, send, until


def test_what_a_handler_takes(queue: Queue) -> None:
    """A handler is found by its kind, and by what it takes."""

    @queue.handler("a")
    def a(delivery: object) -> None: ...

    @queue.handler("b")
    async def b(delivery: object, *, context: object, session: object) -> None: ...

    found = {kind: (one.session, one.context, one.asynchronous) for kind, one in queue._handlers.items()}
    assert found == {"a": (False, False, False), "b": (True, True, True)}
    assert queue._handlers["a"].function is a


def _two(delivery: object, other: object) -> None: ...


def _no_first(*, session: object) -> None: ...


def _generator(delivery: object) -> Iterator[object]:
    yield delivery


@pytest.mark.parametrize("wrong", [lambda: None, _two, _no_first, _generator, 17])
def test_what_cannot_be_a_handler(queue: Queue, wrong: Callable[..., Any]) -> None:
    """A function that a worker could not call is refused where it is declared."""
    with pytest.raises(InvalidArgument, match="handler"):
        queue.handler("a")(wrong)


def test_a_handler_without_parentheses(queue: Queue, engine: Engine) -> None:
    """It is the handler of the kind that messages have by default, as with empty parentheses, and stays a function."""
    handled: list[int] = []

    @queue.handler
    def parse(delivery: Delivery, context: Context) -> None:
        assert not context.stopping
        handled.append(delivery.payload)

    assert list(queue._handlers) == ["default"]
    assert queue._handlers["default"].function is parse
    queue.enqueue(engine, channel="a", payload=7)
    Worker(engine, queue, housekeeping=False).run(drain=True)
    assert handled == [7]
    with pytest.raises(InvalidArgument, match=r"kind 'default' .* has a handler already, .*@queue.handler\('parse'\)"):

        @queue.handler
        def call(_: Delivery) -> None:
            """The second one needs a kind."""

    with pytest.raises(InvalidArgument, match="kind is 7"):
        queue.handler(7)  # type: ignore[call-overload]


def test_an_async_handler_needs_an_async_worker(queue: Queue, engine: Engine) -> None:
    """Workers say at their start which handler they cannot call."""

    @queue.handler("a")
    async def a(delivery: object) -> None: ...

    with pytest.raises(WorkerError, match="'a'"):
        Worker(engine, queue).start()


async def test_a_session_for_a_plain_function(queue: Queue, async_engine: AsyncEngine) -> None:
    """An AsyncWorker says what to give it if a plain function takes a session."""

    @queue.handler("a")
    def a(delivery: object, session: object) -> None: ...

    with pytest.raises(WorkerError, match=r"'a' .* AsyncWorker\(sync_session_factory=sessionmaker\(engine\)\)"):
        await AsyncWorker(async_engine, queue).start()


async def test_sessions_of_both_kinds(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A factory of the wrong kind is refused at the start, for plain functions as for async ones."""

    @queue.handler("a")
    def a(delivery: object, session: object) -> None: ...

    with pytest.raises(InvalidArgument, match=r"sync_session_factory makes a AsyncSession where .* needs sessions of"):
        await AsyncWorker(async_engine, queue, sync_session_factory=async_sessionmaker(async_engine)).start()  # type: ignore[arg-type]  # that is the point
    async with AsyncWorker(async_engine, queue, sync_session_factory=sessionmaker(engine), housekeeping=False):
        pass


async def test_a_queue_without_handlers(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A worker does not start for a queue that has no handlers, also beside one that has some."""
    queue.handler()(lambda _: None)
    for start in (
        Worker(engine, Queue("others")).start,
        Worker(engine, queue, Queue("others")).run,
    ):
        with pytest.raises(InvalidArgument, match=r"queue 'others' has no handlers; declare .* import the modules"):
            start()
    with pytest.raises(InvalidArgument, match="queue 'others' has no handlers"):
        await AsyncWorker(async_engine, Queue("others")).run()


@pytest.mark.parametrize(
    "wrong",
    [{"concurrency": 0}, {"lease": 30}, {"grace": 3}, {"poll_interval": 0}, {"retry": 3}, {"prefetch": 9999}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_bad_arguments(queue: Queue, engine: Engine, wrong: dict[str, Any]) -> None:
    """A wrong argument is refused with its name."""
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Worker(engine, queue, **wrong)


def test_bad_queues(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A worker needs queues, each once, and the right engine."""
    for queues in ((), (queue, Queue("documents")), ("documents",)):
        with pytest.raises(InvalidArgument, match="queue"):
            Worker(engine, *queues)
    with pytest.raises(InvalidArgument, match=r"got an AsyncEngine where an Engine is needed; use an AsyncWorker$"):
        Worker(async_engine, queue)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidArgument, match=r"got an Engine where an AsyncEngine is needed; use a Worker$"):
        AsyncWorker(engine, queue)  # type: ignore[arg-type]  # that is the point
    with (
        engine.connect() as connection,
        pytest.raises(InvalidArgument, match=r"a Connection where an Engine is needed$"),
    ):
        Worker(connection, queue)  # type: ignore[arg-type]  # that is the point


def test_signals_in_another_thread(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """Signals are handled in the main thread only, which is said before anything starts."""
    queue.handler()(lambda _: None)
    before = set(threading.enumerate())
    with ThreadPoolExecutor(1, thread_name_prefix="aside") as executor:
        for run in (
            lambda: Worker(engine, queue).run(handle_signals=True),
            lambda: asyncio.run(AsyncWorker(async_engine, queue).run(handle_signals=True)),
        ):
            error = executor.submit(run).exception(PATIENCE.total_seconds())
            assert isinstance(error, InvalidArgument)
            assert "handle_signals is True in thread 'aside_0'" in str(error)
            assert len(set(threading.enumerate()) - before) == 1


def test_a_missing_schema(engine: Engine) -> None:
    """A worker refuses a database without the queue, with the migration to write."""
    queue = Queue("documents", schema="nowhere")
    queue.handler()(lambda _: None)
    with pytest.raises(SchemaMismatch, match=r"op\.create_fairqueue\(version=\d, schema='nowhere'\)"):
        Worker(engine, queue).start()


def test_an_older_schema(queue: Queue, engine: Engine, database: Database) -> None:
    """A worker refuses a schema that is older than its library needs, with the migration to write."""
    queue.handler()(lambda _: None)
    database.execute("create or replace function fq_version() returns smallint language sql immutable as 'select 0'")
    with pytest.raises(SchemaMismatch, match=r"holds version 0 .*op\.upgrade_fairqueue\(0, 1\)"):
        Worker(engine, queue).start()


def test_a_newer_schema(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker serves a schema that is newer than its library: databases are migrated first."""
    done = threading.Event()
    queue.handler()(lambda _: done.set())
    database.execute("create or replace function fq_version() returns smallint language sql immutable as 'select 99'")
    start(queue)
    send(engine, queue, 1)
    until(done.is_set, "it is handled")


async def test_two_starts_at_once(queue: Queue, async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two starts of an AsyncWorker that overlap the second is refused, and one stop ends all."""
    queue.handler()(lambda _: None)
    go = threading.Event()
    check = Runtime.check

    def check_slowly(runtime: Runtime) -> None:
        go.wait()
        check(runtime)

    monkeypatch.setattr(Runtime, "check", check_slowly)
    worker = AsyncWorker(async_engine, queue)
    starts = [asyncio.create_task(worker.start()) for _ in range(2)]
    # Each task begins, and gets as far as it can.
    await asyncio.sleep(0)
    go.set()
    ends = await asyncio.gather(*starts, return_exceptions=True)
    await worker.stop()
    assert [type(end) for end in ends] == [type(None), WorkerError]
    await auntil(lambda: not [one for one in threading.enumerate() if one.name.startswith(worker.name)], "all ended")
