"""Functions that may be handlers, and those that may not."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, InvalidArgument, Queue, SchemaMismatch, Worker
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.testing import make_delivery
from tests.fixtures.database import Database
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import auntil, drained, send, threads_of, until


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
    send(engine, queue, 7)
    drained(engine, queue)
    assert handled == [7]
    with pytest.raises(InvalidArgument, match=r"kind 'default' .* has a handler already, .*@queue.handler\('parse'\)"):

        @queue.handler
        def call(_: Delivery) -> None:
            """The second one needs a kind."""

    with pytest.raises(InvalidArgument, match="kind is 7"):
        queue.handler(7)  # type: ignore[call-overload]


async def test_what_a_worker_cannot_call(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """Workers say at their start which handler they cannot call, and an AsyncWorker what to give it for a session.

    A factory of the wrong kind is refused at the start, for plain functions as for async ones.
    """
    other = Queue("documents")

    @other.handler("a")
    async def asynchronous(delivery: object) -> None: ...

    with pytest.raises(WorkerError, match="'a'"):
        Worker(engine, other).start()

    @queue.handler("a")
    def plain(delivery: object, session: object) -> None: ...

    with pytest.raises(WorkerError, match=r"'a' .* AsyncWorker\(sync_session_factory=sessionmaker\(engine\)\)"):
        await AsyncWorker(async_engine, queue).start()
    factory: Any = async_sessionmaker(async_engine)
    with pytest.raises(InvalidArgument, match=r"sync_session_factory makes a AsyncSession where .* needs sessions of"):
        await AsyncWorker(async_engine, queue, sync_session_factory=factory).start()
    async with AsyncWorker(async_engine, queue, sync_session_factory=sessionmaker(engine), housekeeping=False):
        pass


def test_a_queue_without_handlers(seen: list[object], queue: Queue, drain: MakeWorker) -> None:
    """A worker does not start for a queue that has no handlers, also beside one that has some."""
    for queues in (Queue("others"),), (queue, Queue("others")):
        with pytest.raises(InvalidArgument, match=r"queue 'others' has no handlers; declare .* import the modules"):
            drain(*queues)
    assert not seen


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


async def test_signals_in_another_thread(handled: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """Signals are handled in the main thread only, which is said before anything starts."""
    worker, async_worker = Worker(engine, handled), AsyncWorker(async_engine, handled)
    for run in (
        lambda: worker.run(handle_signals=True),
        lambda: asyncio.run(async_worker.run(handle_signals=True)),
    ):
        with pytest.raises(InvalidArgument, match="handle_signals is True in thread"):
            await asyncio.to_thread(run)
    assert not threads_of(worker.name) + threads_of(async_worker.name)


def test_versions_of_the_schema(handled: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker refuses a database without the queue, and an older schema than it needs, with the migration to write.

    It serves a newer one: databases are migrated first.
    """
    elsewhere = Queue("documents", schema="nowhere")
    elsewhere.handler()(print)
    with pytest.raises(SchemaMismatch, match=r"op\.create_fairqueue\(version=\d, schema='nowhere'\)"):
        Worker(engine, elsewhere).start()
    version = "create or replace function fq_version() returns smallint language sql immutable as 'select {}'"
    database.execute(version.format(0))
    with pytest.raises(SchemaMismatch, match=r"holds version 0 .*op\.upgrade_fairqueue\(0, 1\)"):
        Worker(engine, handled).start()
    database.execute(version.format(99))
    worker = start(handled)
    send(engine, handled, 1)
    until(lambda: worker.stats.completed, "it is handled")


async def test_two_starts_at_once(handled: Queue, async_engine: AsyncEngine) -> None:
    """Of two starts of an AsyncWorker that overlap the second is refused, and one stop ends all."""
    worker = AsyncWorker(async_engine, handled)
    ends = await asyncio.gather(worker.start(), worker.start(), return_exceptions=True)
    await worker.stop()
    assert [type(end) for end in ends] == [type(None), WorkerError]
    await auntil(lambda: not threads_of(worker.name), "all ended")


@pytest.mark.parametrize("limit", [1, 10])
def test_an_ordering_key(queue: Queue, engine: Engine, limit: int) -> None:
    """It comes with the delivery, alone and among others, as that of a message without one shows none."""
    keys = ("session-42", "schlüssel \N{SNOWMAN}", None)
    for key in keys:
        send(engine, queue, 1, ordering_key=key)
    found = [delivery for _ in keys for delivery in queue.dequeue(engine, limit=limit)]
    assert [delivery.ordering_key for delivery in found] == list(keys)
    assert make_delivery(queue, 1, ordering_key=keys[0]).ordering_key == keys[0]
