"""Draining by run(drain=True): what is there is handled, what comes of it too, and then it returns."""

import asyncio
import threading
from datetime import timedelta

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, ChannelPolicy, Context, Delivery, Queue, Rate, Retry, Worker
from sqlalchemy_fairqueue.reports import LeftoverReason, Leftovers, Reason
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, is_empty, retimed, send, until

HOUR = timedelta(hours=1)


def test_all_that_comes_of_it_is_handled(queue: Queue, engine: Engine, database: Database) -> None:
    """Handlers that enqueue the next message, in several queues, and one that is tried again at once: none is left."""
    other = Queue("others")
    handled: list[int] = []

    @queue.handler()
    def odd(delivery: Delivery, session: Session) -> None:
        handled.append(delivery.payload)
        other.enqueue(session, channel="a", payload=delivery.payload - 1)

    @other.handler()
    def even(delivery: Delivery, session: Session) -> None:
        if delivery.attempt == 1:
            raise Retry(delay=timedelta())
        handled.append(delivery.payload)
        if delivery.payload:
            queue.enqueue(session, channel="b", payload=delivery.payload - 1)

    send(engine, queue, 21)
    worker = Worker(engine, queue, other, housekeeping=False)
    worker.run(drain=True)
    assert handled == list(range(21, -1, -1))
    assert is_empty(database)
    assert (worker.stats.completed, worker.stats.retried) == (22, 11)


async def test_the_same_in_a_loop(queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """An AsyncWorker returns too, and begins anew where it is asked again."""
    handled: list[int] = []

    @queue.handler()
    async def handle(delivery: Delivery, session: AsyncSession) -> None:
        handled.append(delivery.payload)
        if delivery.payload:
            queue.enqueue(session, channel="a", payload=delivery.payload - 1)

    worker = AsyncWorker(async_engine, queue, housekeeping=False)
    for _ in range(2):
        send(engine, queue, 9)
        await asyncio.wait_for(worker.run(drain=True), PATIENCE.total_seconds())
    assert handled == [*range(9, -1, -1), *range(9, -1, -1)]
    assert is_empty(database)


def test_a_message_that_is_withdrawn_meanwhile(queue: Queue, engine: Engine, database: Database) -> None:
    """It ends as others do: what comes of the next one is still waited for, and then nothing."""
    handled: list[object] = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        handled.append(delivery.payload)
        if delivery.payload == "withdrawn":
            queue.cancel(engine, delivery.message_id)
            until(lambda: context.cancelled, "it has heard of it")
            queue.enqueue(engine, channel="a", payload="next")
        if delivery.payload == "next":
            queue.enqueue(session, channel="a", payload="last")

    send(engine, queue, "withdrawn")
    worker = retimed(Worker(engine, queue, lease=LONG_LEASE, housekeeping=False), **MANY_HEARTBEATS)
    running = threading.Thread(target=lambda: worker.run(drain=True), daemon=True)
    running.start()
    running.join(PATIENCE.total_seconds())
    assert (running.is_alive(), is_empty(database)) == (False, True)
    assert (handled, worker.stats.cancelled) == (["withdrawn", "next", "last"], 1)


def test_what_cannot_be_delivered_now_is_left(queue: Queue, engine: Engine) -> None:
    """What is due later, of a paused channel, or in the hands of others, is not waited for."""
    handled: list[object] = []

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        handled.append(delivery.payload)

    send(engine, queue, "held")
    [held] = queue.dequeue(engine)
    send(engine, queue, "later", delay=HOUR)
    queue.pause(engine, "paused", new=True)
    send(engine, queue, "paused", channel="paused")
    queue.configure_channel(engine, "slow", ChannelPolicy(rate=Rate(1, per=HOUR)))
    send(engine, queue, "first", "second", channel="slow")
    worker = Worker(engine, queue, housekeeping=False)
    worker.run(drain=True)
    assert handled == ["first"]
    [left] = worker.leftovers()
    assert (left.queue, left.ready, left.scheduled, left.leased) == (queue.name, 2, 1, 1)
    reasons = {one.reason: (one.messages, one.channels, one.until is None) for one in left.reasons}
    assert reasons == {Reason.PAUSED: (1, 1, True), Reason.RATE: (1, 1, False), Reason.SCHEDULED: (1, 1, True)}
    lines = str(left).splitlines()
    assert lines[0] == "left in queue documents: 2 ready, 1 scheduled, 1 leased"
    assert "  paused: 1 in 1 channel" in lines
    queue.complete(engine, held)


async def test_an_async_worker_tells_what_it_left(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """As a Worker does: nothing, or what waits and for what."""

    @queue.handler()
    async def handle(delivery: Delivery) -> None: ...

    worker = AsyncWorker(async_engine, queue, housekeeping=False)
    send(engine, queue, "due")
    await worker.run(drain=True)
    assert await worker.leftovers() == ()
    send(engine, queue, "later", delay=HOUR)
    await worker.run(drain=True)
    reason = LeftoverReason(reason=Reason.SCHEDULED, messages=1, channels=1)
    [left] = await worker.leftovers()
    assert left == Leftovers(queue=queue.name, ready=0, scheduled=1, held=0, leased=0, reasons=(reason,))


def test_a_stop_ends_it_before(queue: Queue, engine: Engine, database: Database) -> None:
    """Whoever stops a worker that drains need not wait for the rest."""
    began, go = threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        began.set()
        go.wait(PATIENCE.total_seconds())

    send(engine, queue, *range(50))
    worker = Worker(engine, queue, concurrency=1, housekeeping=False)
    running = threading.Thread(target=lambda: worker.run(drain=True))
    running.start()
    until(began.is_set, "a handler works")
    worker.stop(timedelta())
    running.join(PATIENCE.total_seconds())
    go.set()
    assert (running.is_alive(), is_empty(database)) == (False, False)
