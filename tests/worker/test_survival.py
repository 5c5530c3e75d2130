"""Threads of a worker: none ends before its worker stops, whatever is raised in it."""

import asyncio
import logging
import sys
from concurrent.futures import CancelledError
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.duties import Heartbeat
from sqlalchemy_fairqueue.worker.fetcher import Fetcher
from sqlalchemy_fairqueue.worker.leases import Buffer
from sqlalchemy_fairqueue.worker.settler import Settler
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database, install
from tests.worker.conftest import StartWorker
from tests.worker.helpers import (
    AT_ONCE,
    LONG_LEASE,
    MANY_HEARTBEATS,
    Busy,
    auntil,
    drained,
    is_empty,
    outlive,
    send,
    until,
)


def test_the_last_one_is_taken_meanwhile(queue: Queue, engine: Engine, start: StartWorker, seen: list[object]) -> None:
    """A buffer that handlers empty while the fetcher asks for its first delivery does not end the fetcher."""

    class Racing(Buffer):
        """As a buffer that somebody empties between two questions."""

        def __bool__(self) -> bool:
            return True

    worker = start(queue)
    assert worker._runtime is not None
    worker._runtime.executor.buffer = Racing()
    worker._runtime.trigger.set()
    send(engine, queue, 1)
    until(lambda: seen, "the fetcher goes on")


def test_whatever_is_raised(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    start: StartWorker,
    seen: list[object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Parts in which something is raised that nobody thought of say so in the log and go on."""
    raised: list[str] = []

    def breaking(part: Any, step: str, error: type[BaseException]) -> None:
        original = getattr(part, step)
        said = f"nobody thought of {error.__name__} in {step}"

        def once(self: Any, *arguments: Any) -> Any:
            if said not in raised:
                raised.append(said)
                raise error(said)
            return original(self, *arguments)

        monkeypatch.setattr(part, step, once)

    for part, step in (Fetcher, "_round"), (Settler, "_gather"), (Heartbeat, "extend_all"):
        for error in (SystemExit, RuntimeError):
            breaking(part, step, error)
    worker = start(queue, lease=timedelta(seconds=1))
    until(lambda: len(raised) == 6, "they are raised")
    send(engine, queue, 1)
    until(lambda: seen and worker.stats.completed, "it goes on")
    until(lambda: caplog.text.count("again, after") == 3, "each goes on")
    assert worker.stats.failures >= 6
    for step in ("_round", "_gather", "extend_all"):
        assert f"in {step}" in caplog.text


def test_a_log_that_fails(queue: Queue, engine: Engine) -> None:
    """A handler of the application's logging that raises costs no thread and no message."""

    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise OSError("the disk is full")

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("so that something is logged")

    log = logging.getLogger("sqlalchemy_fairqueue.worker")
    broken = Broken()
    log.addHandler(broken)
    send(engine, queue, *range(5))
    try:
        assert drained(engine, queue, concurrency=1, retry=AT_ONCE).stats.completed == 5
    finally:
        log.removeHandler(broken)


def test_one_broken_queue(engine: Engine, database: Database, start: StartWorker, clock: Clock, busy: Busy) -> None:
    """A queue whose schema refuses its heartbeat costs the worker's other queues no lease."""
    with create_engine(database.url, poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql("create schema apart")
        install(connection, schema="apart")
    queues = Queue("broken", schema="apart"), Queue("sound")
    for queue in queues:
        queue.handler()(busy)
        send(engine, queue, 1)
    worker = start(*queues, lease=LONG_LEASE, timings=MANY_HEARTBEATS)
    busy.begun(2)
    database.execute("alter function apart.fq_heartbeat rename to fq_heartbroken")
    outlive(LONG_LEASE, clock, worker)
    assert database.value("select expires_at > fq_now() from fq_lease l join fq_message m on m.lease_id = l.id")
    assert [context.lost for context in busy.contexts if context.delivery.queue == "sound"] == [False]


def test_a_connection_that_cannot_be_set_up(database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that a server refuses to set up is not left behind."""

    def refused(connection: Connection) -> None:
        connection.exec_driver_sql("select nonsense")

    own = create_engine(database.url, connect_args={"application_name": "half-made"}, pool_size=1)
    half_made = DedicatedConnection(Worker(own, queue)._options)
    monkeypatch.setattr(half_made, "_prepare", refused)
    for _ in range(3):
        with pytest.raises(Exception, match="nonsense"):
            half_made.run(lambda connection: connection.exec_driver_sql("select 1"))
    count = (
        "select count(*) from pg_stat_activity where application_name = 'half-made' and datname = current_database()"
    )
    until(lambda: database.value(count) == 0, "none is left")


async def test_a_handler_that_stops_iterations(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """A plain function in a thread of an AsyncWorker may raise a StopIteration that cannot be shown."""

    class Odd(StopIteration):
        def __repr__(self) -> str:
            raise ValueError("cannot be shown")

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise Odd

    send(engine, queue, 1)
    async with AsyncWorker(async_engine, queue, retry=AT_ONCE):
        await auntil(lambda: is_empty(database), "it is tried again")


@pytest.mark.parametrize("raised", [TimeoutError, CancelledError])
async def test_errors_that_futures_replace(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, raised: type[Exception]
) -> None:
    """A plain function in a thread of an AsyncWorker fails with what it raised, with its frames and its cause."""

    @queue.handler()
    def handle_in_thread(_: Delivery) -> None:
        raise raised("the other side is slow") from LookupError("its name is missing")

    send(engine, queue, 1)
    policy = RetryPolicy(max_attempts=1, retry_on=(Exception,))
    async with AsyncWorker(async_engine, queue, retry=policy) as worker:
        await auntil(lambda: worker.stats.buried, "it has failed")
    error = database.value("select error from fq_dead_letter")
    assert "in handle_in_thread" in error
    assert "its name is missing" in error


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.eager_task_factory came with Python 3.12")
async def test_eager_tasks(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An AsyncWorker works in a loop that begins tasks at once."""

    @queue.handler("session")
    async def fail(_: Delivery, session: AsyncSession) -> None:
        await session.execute(text("select 1 / 0"))

    @queue.handler("cancel")
    async def cancel(_: Delivery) -> None:
        raise asyncio.CancelledError

    for kind in "session", "cancel":
        send(engine, queue, *range(6), kind=kind, max_attempts=1)
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
    async with AsyncWorker(async_engine, queue, concurrency=2) as worker:
        await auntil(lambda: worker.stats.buried == 12, "all have failed")
    asyncio.get_running_loop().set_task_factory(None)
