"""Handlers in threads whose time is over: their attempt fails then, whatever they do, and they hold their thread."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from random import random

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, LeaseLost, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.leases import HeldDelivery
from sqlalchemy_fairqueue.worker.runtime import Runtime
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import StartWorker
from tests.worker.helpers import (
    AT_ONCE,
    LATER,
    LONG_LEASE,
    MANY_HEARTBEATS,
    Busy,
    aside,
    auntil,
    count_effects,
    retimed,
    send,
    until,
    write_effect,
)

_SHORT = timedelta(milliseconds=20)
_ERROR = "select error from fq_message where lease_id is null and attempts = 1"


class _AtOnceOnce(RetryPolicy):
    def delay(self, attempt: int, chance: Callable[[], float] = random) -> timedelta:
        """None for the second attempt."""
        return timedelta() if attempt == 1 else LATER.delay(attempt, chance)


class Swallowing:
    """An async handler that no cancellation ends, but of the payload "heeds", until the test lets it end."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        """Go on."""
        self.begun += 1
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                if delivery.payload == "heeds":
                    raise


def _attempts(busy: Busy) -> list[int]:
    return [context.delivery.attempt for context in busy.contexts]


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_handler_that_hangs(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails when its time is over: the message has the error, and the log says which it is and how long it had.

    It holds its thread until it returns: the worker takes what its other threads can handle, and no more.
    """
    done: list[int] = []
    queue.handler("hang", timeout=_SHORT)(busy)
    queue.handler()(lambda delivery: done.append(delivery.payload))
    worker = start(queue, concurrency=2, retry=LATER)
    [message_id] = send(engine, queue, 1, kind="hang", channel="customer-7")
    until(lambda: (worker.stats.hung, worker.stats.retried) == (1, 1), "it hangs, and has failed")
    assert "HandlerTimeout" in database.value(_ERROR)
    until(lambda: len(caplog.records) == 2, "both are logged")
    failed, hangs = _messages(caplog)
    for said in failed, hangs:
        assert f"message {message_id} of queue documents, channel customer-7, kind hang" in said
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
    busy.go.set()
    until(lambda: done[3:] == [4], "its threads are free again")
    until(lambda: "0 of 2 handlers hang" in caplog.text, "none hangs")
    assert (worker.stats.taken, worker.stats.timed_out, worker.stats.hung) == (taken + 1, 2, 0)


def test_a_handler_that_ignores_a_cancel(
    queue: Queue, engine: Engine, start: StartWorker, busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that runs on though its message is cancelled hangs, is logged once, and still settles it."""
    queue.handler()(busy)
    worker = start(queue, concurrency=1, lease=timedelta(seconds=2), timings={"ignored_cancel": 0.01})
    [message_id] = send(engine, queue, 1)
    busy.begun()
    assert worker.stats.hung == 0
    queue.cancel(engine, message_id)
    until(lambda: worker.stats.hung == 1, "it hangs")
    until(lambda: worker.stats.heartbeats > 3, "it is told again and again")
    until(lambda: caplog.records, "it is logged")
    [said] = _messages(caplog)
    assert f"message {message_id} of queue documents" in said
    assert "its handler still runs" in said
    assert not worker.health().ready
    busy.go.set()
    until(lambda: worker.stats.completed == 1, "it is settled")
    until(lambda: worker.stats.hung == 0, "it has returned")
    until(lambda: "no longer hangs" in caplog.text, "it is logged")
    assert (worker.stats.cancelled, worker.stats.timed_out) == (1, 0)
    assert "settles nothing" not in caplog.text


async def test_a_task_that_ignores_a_cancel(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An async handler that swallows its cancellation hangs as well; one that ends with it never does."""
    handler = Swallowing()
    queue.handler()(handler)
    worker = AsyncWorker(async_engine, queue, concurrency=2, housekeeping=False, lease=LONG_LEASE)
    async with retimed(worker, ignored_cancel=0.01, **MANY_HEARTBEATS):
        ids = send(engine, queue, "heeds", "ignores")
        await auntil(lambda: handler.begun == 2, "both have begun")
        for message_id in ids:
            await asyncio.to_thread(queue.cancel, engine, message_id)
        await auntil(lambda: (worker.stats.hung, worker.stats.cancelled) == (1, 2), "one of them hangs")
        handler.go.set()
        await auntil(lambda: worker.stats.hung == 0, "it has returned")


def test_three_deploys(queue: Queue, engine: Engine, database: Database, busy: Busy) -> None:
    """A message whose handler hangs in each of three workers is a dead letter: no stop gives it back uncounted."""
    queue.handler(timeout=_SHORT)(busy)
    send(engine, queue, 1, max_attempts=3)
    for attempt in 1, 2, 3:
        worker = Worker(engine, queue, retry=AT_ONCE, concurrency=1, housekeeping=False)
        with retimed(worker, cleanup=0.01):
            until(lambda worker=worker: worker.stats.timed_out == 1, "its time is over")  # type: ignore[misc]
        assert worker.stats.released == 0
        busy.begun(attempt)
    assert _attempts(busy) == [1, 2, 3]
    assert database.value("select error like '%HandlerTimeout%' from fq_dead_letter where attempts = 3")


def test_a_handler_that_returns_while_it_is_given_up(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy
) -> None:
    """A handler that returns while its failure is being decided on changes nothing: the message is retried."""

    class Slow(RetryPolicy):
        def delay(self, attempt: int, chance: Callable[[], float] = random) -> timedelta:
            busy.go.set()
            assert worker._runtime is not None
            until(lambda executor=worker._runtime.executor: not executor.occupied, "it has returned")  # type: ignore[misc]
            return LATER.delay(attempt, chance)

    queue.handler(timeout=_SHORT, retry=Slow())(busy)
    worker = start(queue, concurrency=1)
    send(engine, queue, 1)
    until(lambda: worker.stats.retried or worker.stats.lost, "it is settled")
    assert (worker.stats.retried, worker.stats.lost, worker.stats.hung) == (1, 0, 0)
    assert "HandlerTimeout" in database.value(_ERROR)


def test_a_stop_at_the_same_moment(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler whose time is over when the grace ends has failed, also where nobody has noticed that yet."""
    monkeypatch.setattr(Executor, "_check_time", lambda _: None)
    queue.handler(timeout=_SHORT)(busy)
    send(engine, queue, 1)
    worker = start(queue, retry=LATER)
    until(lambda: busy.contexts and busy.contexts[0].timed_out, "its time is over")
    worker.stop(timedelta())
    assert (worker.stats.retried, worker.stats.released) == (1, 0)
    assert "HandlerTimeout" in database.value(_ERROR)


def test_a_stop_does_not_wait_for_it(
    queue: Queue, engine: Engine, start: StartWorker, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop with an hour of grace returns while a handler hangs: its delivery is settled."""
    queue.handler(timeout=_SHORT)(busy)
    send(engine, queue, 1)
    given_up: list[int] = []
    stop = Runtime.stop

    def count(runtime: Runtime, held: list[HeldDelivery], after: float = 0.0) -> None:
        given_up.append(len(held))
        stop(runtime, held, after)

    monkeypatch.setattr(Runtime, "stop", count)
    worker = start(queue, retry=LATER, grace=timedelta(hours=1), timings={"cleanup": 0.01})
    until(lambda: worker.stats.hung == 1, "it hangs")
    with aside(worker.stop):
        pass
    assert given_up == [0]


@pytest.mark.usefixtures("effects")
def test_it_settles_nothing_afterwards(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Neither its session nor a verb settles anything when its time is over, also while its worker has it again."""
    go = threading.Event()
    errors: list[tuple[int, ...]] = []

    @queue.handler(timeout=_SHORT)
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        if delivery.attempt == 2:
            again.set()
            until(go.is_set, "it may go on")
            return
        write_effect(session, delivery)
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
    assert count_effects(database) == 0
    assert database.value("select count(*) from fq_message") == 1
    assert worker.stats.completed == 0
    go.set()


async def test_a_plain_function_in_a_loop(queue: Queue, engine: Engine, async_engine: AsyncEngine, busy: Busy) -> None:
    """In an AsyncWorker a thread that hangs counts towards the concurrency, too: threads do not pile up."""
    queue.handler(timeout=_SHORT)(busy)
    send(engine, queue, 1)
    async with AsyncWorker(async_engine, queue, concurrency=1, retry=AT_ONCE, housekeeping=False) as worker:
        # A thread that began too late to call it hangs for a moment only, and the next attempt follows.
        await auntil(lambda: busy.contexts and worker.stats.hung == 1, "it hangs")
        await auntil(lambda: worker.stats.retried == _attempts(busy)[0], "each attempt so far has failed")
        assert worker._runtime is not None
        assert worker._runtime.executor.free() == 0
        busy.go.set()
        await auntil(lambda: len(busy.contexts) > 1, "another handler can begin")
    assert _attempts(busy)[1] == _attempts(busy)[0] + 1


@pytest.mark.parametrize("stopping", [False, True])
async def test_a_task_that_cannot_be_cancelled(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, *, stopping: bool
) -> None:
    """An async handler that goes on when it is cancelled has failed a moment later, and its message is not kept.

    A stop with an hour of grace, during which it begins to hang, ends when it does.
    """
    handler = Swallowing()
    queue.handler(timeout=timedelta(milliseconds=200) if stopping else _SHORT)(handler)
    send(engine, queue, 1)
    worker = AsyncWorker(async_engine, queue, retry=LATER, grace=timedelta(hours=1), housekeeping=False)
    await retimed(worker, cleanup=0.01).start()
    if stopping:
        await auntil(lambda: handler.begun, "it is at work")
        await asyncio.wait_for(worker.stop(), PATIENCE.total_seconds())
    await auntil(lambda: worker.stats.retried == 1, "it has failed")
    assert (worker.stats.released, worker.stats.hung) == (0, 1)
    handler.go.set()
    await auntil(lambda: worker.stats.hung == 0, "it has returned")
    await worker.stop()
    assert (worker.stats.completed, worker.stats.released) == (0, 0)
    assert "HandlerTimeout" in database.value(_ERROR)


async def test_a_loop_that_is_blocked(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An async handler that blocks the loop beyond its time has failed while it blocks."""

    @queue.handler(timeout=_SHORT)
    async def handle(_: Delivery) -> None:
        # On purpose: nothing of the loop runs meanwhile.
        until(lambda: worker.stats.retried == 1, "it has failed")
        seen.append(worker.stats.hung)

    seen: list[int] = []
    send(engine, queue, 1)
    worker = retimed(AsyncWorker(async_engine, queue, retry=LATER, housekeeping=False), cleanup=0.01)
    async with worker:
        await auntil(lambda: seen, "it has returned")
        await auntil(lambda: worker.stats.hung == 0, "another handler can begin")
    assert seen == [1]
    assert (worker.stats.completed, worker.stats.released) == (0, 0)
