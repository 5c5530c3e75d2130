"""Handlers in threads whose time is over: their attempt fails then, whatever they do, and they hold their thread."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from random import random
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, LeaseLost, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.leases import HeldDelivery
from sqlalchemy_fairqueue.worker.runtime import Runtime
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import StartWorker
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, auntil, retimed, send, until

_SHORT = timedelta(milliseconds=20)
_AT_ONCE = RetryPolicy(first=timedelta(), cap=timedelta())
_LATER = RetryPolicy(first=timedelta(hours=1), cap=timedelta(hours=1), jitter=0)


class _AtOnceOnce(RetryPolicy):
    def delay(self, attempt: int, chance: Callable[[], float] = random) -> timedelta:
        """None for the second attempt."""
        return timedelta() if attempt == 1 else _LATER.delay(attempt, chance)


class Hanging:
    """A handler that hangs until the test lets it go on."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.go = threading.Event()

    def __call__(self, delivery: Delivery) -> None:
        """Hang."""
        self.begun.append(delivery.attempt)
        until(self.go.is_set, "it may go on")


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """A handler that hangs; it ends with the test."""
    handler = Hanging()
    yield handler
    handler.go.set()


def test_a_handler_that_hangs(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    start: StartWorker,
    hanging: Hanging,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It fails when its time is over: the message has the error, and the log says which it is and how long it had.

    It holds its thread until it returns: the worker takes what its other threads can handle, and no more.
    """
    done: list[int] = []
    queue.handler("hang", timeout=_SHORT)(hanging)
    queue.handler()(lambda delivery: done.append(delivery.payload))
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        worker = start(queue, concurrency=2, retry=_LATER)
        [message_id] = send(engine, queue, 1, kind="hang", channel="customer-7")
        until(lambda: (worker.stats.hung, worker.stats.retried) == (1, 1), "it hangs, and has failed")
        error = "select error from fq_message where lease_id is null and attempts = 1"
        assert "HandlerTimeout" in database.value(error)
        until(lambda: len(caplog.records) == 2, "both are logged")
        failed, hangs = (record.getMessage() for record in caplog.records)
        for said in failed, hangs:
            assert f"message {message_id} of queue documents, channel customer-7, kind hang" in said
        assert "attempt 1 of" in failed
        assert "(timeout 0:00:00.020000)" in failed
        assert "1 of 2 handlers hang" in hangs
        send(engine, queue, 1, 2, 3)
        until(lambda: len(done) == 3, "the other thread works")
        send(engine, queue, 1, kind="hang")
        until(lambda: worker.stats.hung == 2, "both hang")
        until(lambda: "2 of 2 handlers hang; the worker takes no messages" in caplog.text, "it is logged")
        taken = worker.stats.taken
        assert worker._runtime is not None
        assert worker._runtime.executor.free() == 0
        send(engine, queue, 4)
        hanging.go.set()
        until(lambda: done[3:] == [4], "its threads are free again")
        until(lambda: "0 of 2 handlers hang" in caplog.text, "none hangs")
    assert (worker.stats.taken, worker.stats.timed_out, worker.stats.hung) == (taken + 1, 2, 0)


def test_a_handler_that_ignores_a_cancel(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    start: StartWorker,
    hanging: Hanging,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A handler that runs on though its message is cancelled hangs, is logged once, and still settles it."""
    queue.handler()(hanging)
    lease = timedelta(seconds=2)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        worker = start(queue, concurrency=1, name="w1", lease=lease, timings={"ignored_cancel": 0.01})
        [message_id] = send(engine, queue, 1)
        until(lambda: hanging.begun, "it has begun")
        assert worker.stats.hung == 0
        queue.cancel(engine, message_id)
        until(lambda: worker.stats.hung == 1, "it hangs")
        until(lambda: worker.stats.heartbeats > 3, "it is told again and again")
        until(lambda: caplog.records, "it is logged")
        [said] = [record.getMessage() for record in caplog.records]
        assert f"message {message_id} of queue documents" in said
        assert " s ago, and its handler still runs" in said
        assert not worker.health().ready
        hanging.go.set()
        until(lambda: worker.stats.completed == 1, "it is settled")
        until(lambda: worker.stats.hung == 0, "it has returned")
        until(lambda: "no longer hangs" in caplog.text, "it is logged")
    assert (worker.stats.cancelled, worker.stats.timed_out) == (1, 0)
    assert "settles nothing" not in caplog.text
    assert database.value("select count(*) from fq_message") == 0


async def test_a_task_that_ignores_a_cancel(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An async handler that swallows its cancellation hangs as well; one that ends with it never does."""
    go, begun = asyncio.Event(), []

    @queue.handler()
    async def handle(delivery: Delivery) -> None:
        begun.append(delivery.message_id)
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                if delivery.payload == "heeds":
                    raise

    worker = retimed(
        AsyncWorker(async_engine, queue, concurrency=2, housekeeping=False, lease=LONG_LEASE),
        ignored_cancel=0.01,
        **MANY_HEARTBEATS,
    )
    await worker.start()
    ids = send(engine, queue, "heeds", "ignores")
    await auntil(lambda: len(begun) == 2, "both have begun")
    for message_id in ids:
        await asyncio.to_thread(queue.cancel, engine, message_id)
    await auntil(lambda: (worker.stats.hung, worker.stats.cancelled) == (1, 2), "one of them hangs")
    go.set()
    await auntil(lambda: worker.stats.hung == 0, "it has returned")
    await worker.stop()


def _is_over(worker: Worker) -> bool:
    return worker.stats.timed_out == 1


def test_three_deploys(queue: Queue, engine: Engine, database: Database, hanging: Hanging) -> None:
    """A message whose handler hangs in each of three workers is a dead letter: no stop gives it back uncounted."""
    queue.handler(timeout=_SHORT)(hanging)
    send(engine, queue, 1, max_attempts=3)
    for attempt in 1, 2, 3:
        worker = Worker(engine, queue, retry=_AT_ONCE, concurrency=1, housekeeping=False)
        with retimed(worker, cleanup=0.01):
            until(partial(_is_over, worker), "its time is over")
        assert worker.stats.released == 0
        until(lambda attempt=attempt: hanging.begun == list(range(1, attempt + 1)), "it has begun")  # type: ignore[misc]
    assert database.value("select attempts from fq_dead_letter") == 3
    assert "HandlerTimeout" in database.value("select error from fq_dead_letter")


def test_a_handler_that_returns_while_it_is_given_up(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, hanging: Hanging
) -> None:
    """A handler that returns while its failure is being decided on changes nothing: the message is retried."""

    class Slow(RetryPolicy):
        def delay(self, attempt: int, chance: Callable[[], float] = random) -> timedelta:
            hanging.go.set()
            assert worker._runtime is not None
            until(lambda executor=worker._runtime.executor: not executor.occupied, "it has returned")  # type: ignore[misc]
            return _LATER.delay(attempt, chance)

    queue.handler(timeout=_SHORT, retry=Slow())(hanging)
    worker = start(queue, concurrency=1)
    send(engine, queue, 1)
    until(lambda: worker.stats.retried or worker.stats.lost, "it is settled")
    assert (worker.stats.retried, worker.stats.lost, worker.stats.hung) == (1, 0, 0)
    assert "HandlerTimeout" in database.value("select error from fq_message where lease_id is null and attempts = 1")


def test_a_stop_at_the_same_moment(
    queue: Queue, engine: Engine, database: Database, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler whose time is over when the grace ends has failed, also where nobody has noticed that yet."""
    monkeypatch.setattr(Executor, "_check_time", lambda _: None)
    contexts: list[Context] = []

    @queue.handler(timeout=_SHORT)
    def handle(delivery: Delivery, context: Context) -> None:
        contexts.append(context)
        hanging(delivery)

    send(engine, queue, 1)
    worker = Worker(engine, queue, retry=_LATER, housekeeping=False)
    worker.start()
    until(lambda: contexts and contexts[0].timed_out, "its time is over")
    worker.stop(timedelta())
    assert (worker.stats.retried, worker.stats.released) == (1, 0)
    assert "HandlerTimeout" in database.value("select error from fq_message where attempts = 1")


def test_a_stop_does_not_wait_for_it(
    queue: Queue, engine: Engine, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop with an hour of grace returns while a handler hangs: its delivery is settled."""
    queue.handler(timeout=_SHORT)(hanging)
    send(engine, queue, 1)
    given_up: list[int] = []
    stop = Runtime.stop

    def count(runtime: Runtime, held: list[HeldDelivery], after: float = 0.0) -> None:
        given_up.append(len(held))
        stop(runtime, held, after)

    monkeypatch.setattr(Runtime, "stop", count)
    worker = retimed(Worker(engine, queue, retry=_LATER, grace=timedelta(hours=1), housekeeping=False), cleanup=0.01)
    worker.start()
    until(lambda: worker.stats.hung == 1, "it hangs")
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    stopping.join(PATIENCE.total_seconds())
    assert not stopping.is_alive()
    assert given_up == [0]


def test_it_settles_nothing_afterwards(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Neither its session nor a verb settles anything when its time is over, also while its worker has it again."""
    database.execute("create table effect (message_id bigint)")
    go = threading.Event()
    errors: list[tuple[int, ...]] = []

    @queue.handler(timeout=_SHORT)
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        if delivery.attempt == 2:
            again.set()
            until(go.is_set, "it may go on")
            return
        session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})
        until(lambda: again.is_set(), "its second attempt begins, under the same lease")  # noqa: PLW0108 - set later
        assert context.lost
        for verb in queue.complete, queue.retry, queue.release:
            try:
                verb(engine, delivery)
            except LeaseLost as error:
                errors.append(error.message_ids)
        try:
            session.commit()
        finally:
            over.set()

    again, over = threading.Event(), threading.Event()
    [message_id] = send(engine, queue, 1)
    worker = start(queue, concurrency=2, retry=_AtOnceOnce())
    until(over.is_set, "the first one has tried")
    assert errors == [(message_id,)] * 3
    until(lambda: worker.stats.hung <= 1, "it has returned")
    assert database.value("select count(*) from effect") == 0
    assert database.value("select count(*) from fq_message") == 1
    assert worker.stats.completed == 0
    go.set()


async def test_a_plain_function_in_a_loop(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, hanging: Hanging
) -> None:
    """In an AsyncWorker a thread that hangs counts towards the concurrency, too: threads do not pile up."""
    queue.handler(timeout=_SHORT)(hanging)
    send(engine, queue, 1)
    async with AsyncWorker(async_engine, queue, concurrency=1, retry=_AT_ONCE, housekeeping=False) as worker:
        # A thread that began too late to call it hangs for a moment only, and the next attempt follows.
        await auntil(lambda: hanging.begun and worker.stats.hung == 1, "it hangs")
        await auntil(lambda: worker.stats.retried == hanging.begun[0], "each attempt so far has failed")
        assert worker._runtime is not None
        assert worker._runtime.executor.free() == 0
        hanging.go.set()
        await auntil(lambda: len(hanging.begun) > 1, "another handler can begin")
    assert hanging.begun[1] == hanging.begun[0] + 1


async def test_a_task_that_cannot_be_cancelled(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """An async handler that goes on when it is cancelled has failed a moment later, and its message is not kept."""
    go: Any = asyncio.Event()

    @queue.handler(timeout=_SHORT)
    async def handle(_: Delivery) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    send(engine, queue, 1)
    worker = retimed(AsyncWorker(async_engine, queue, concurrency=2, retry=_LATER, housekeeping=False), cleanup=0.01)
    await worker.start()
    await auntil(lambda: worker.stats.retried == 1, "it has failed")
    assert worker.stats.hung == 1
    go.set()
    await auntil(lambda: worker.stats.hung == 0, "it has returned")
    await worker.stop()
    assert (worker.stats.completed, worker.stats.released) == (0, 0)
    assert "HandlerTimeout" in database.value("select error from fq_message where attempts = 1")


async def test_a_stop_does_not_wait_for_a_task_that_hangs(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """A stop with an hour of grace, during which an async handler begins to hang, ends when it does."""
    begun, go = asyncio.Event(), asyncio.Event()

    @queue.handler(timeout=timedelta(milliseconds=200))
    async def handle(_: Delivery) -> None:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    send(engine, queue, 1)
    hour = timedelta(hours=1)
    worker = retimed(AsyncWorker(async_engine, queue, retry=_LATER, grace=hour, housekeeping=False), cleanup=0.01)
    await worker.start()
    await begun.wait()
    await asyncio.wait_for(worker.stop(), PATIENCE.total_seconds())
    assert (worker.stats.retried, worker.stats.released, worker.stats.hung) == (1, 0, 1)
    assert database.value("select attempts from fq_message") == 1
    go.set()
    await auntil(lambda: worker.stats.hung == 0, "it has returned")


async def test_a_loop_that_is_blocked(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An async handler that blocks the loop beyond its time has failed while it blocks."""

    @queue.handler(timeout=_SHORT)
    async def handle(_: Delivery) -> None:
        # On purpose: nothing of the loop runs meanwhile.
        until(lambda: worker.stats.retried == 1, "it has failed")
        seen.append(worker.stats.hung)

    seen: list[int] = []
    send(engine, queue, 1)
    worker = retimed(AsyncWorker(async_engine, queue, retry=_LATER, housekeeping=False), cleanup=0.01)
    async with worker:
        await auntil(lambda: seen, "it has returned")
        await auntil(lambda: worker.stats.hung == 0, "another handler can begin")
    assert seen == [1]
    assert (worker.stats.completed, worker.stats.released) == (0, 0)
