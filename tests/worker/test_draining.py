"""Draining by run(drain=True): what is there is handled, what comes of it too, and then it returns."""

import asyncio
from datetime import timedelta
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, ChannelPolicy, Context, Delivery, Queue, Rate, Retry, Worker
from sqlalchemy_fairqueue.reports import Reason
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, Busy, aside, drained, is_empty, retimed, send, until

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
    worker = drained(engine, queue, other)
    assert handled == list(range(21, -1, -1))
    assert is_empty(database)
    assert (worker.stats.completed, worker.stats.retried) == (22, 11)


async def test_in_a_loop(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """An AsyncWorker returns too, begins anew where it is asked again, and tells what it left: what waits for what."""
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
        assert await worker.leftovers() == ()
    assert handled == [*range(9, -1, -1)] * 2
    send(engine, queue, "later", delay=HOUR)
    await worker.run(drain=True)
    [left] = await worker.leftovers()
    assert (left.ready, left.scheduled, [one.reason for one in left.reasons]) == (0, 1, [Reason.SCHEDULED])


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
    with aside(partial(worker.run, drain=True)):
        pass
    assert (handled, worker.stats.cancelled) == (["withdrawn", "next", "last"], 1)
    assert is_empty(database)


def test_what_cannot_be_delivered_now_is_left(queue: Queue, engine: Engine, seen: list[object]) -> None:
    """What is due later, of a paused channel, or in the hands of others, is not waited for."""
    send(engine, queue, "held")
    [held] = queue.dequeue(engine)
    send(engine, queue, "later", delay=HOUR)
    queue.pause(engine, "paused", new=True)
    send(engine, queue, "paused", channel="paused")
    queue.configure_channel(engine, "slow", ChannelPolicy(rate=Rate(1, per=HOUR)))
    send(engine, queue, "first", "second", channel="slow")
    worker = drained(engine, queue)
    assert seen == ["first"]
    [left] = worker.leftovers()
    assert (left.queue, left.ready, left.scheduled, left.leased) == (queue.name, 2, 1, 1)
    reasons = {one.reason: (one.messages, one.channels, one.until is None) for one in left.reasons}
    assert reasons == {Reason.PAUSED: (1, 1, True), Reason.RATE: (1, 1, False), Reason.SCHEDULED: (1, 1, True)}
    lines = str(left).splitlines()
    assert lines[0] == "left in queue documents: 2 ready, 1 scheduled, 1 leased"
    assert "  paused: 1 in 1 channel" in lines
    queue.complete(engine, held)


def test_a_shared_limit_that_another_queue_uses_up(
    queue: Queue, engine: Engine, database: Database, seen: list[object]
) -> None:
    """A drain waits until the other queue gives a slot back."""
    other = Queue("other")
    queue.limits.configure(engine, "api", max_concurrency=1)
    for one in (queue, other):
        one.configure(engine, limits=["api"])
        send(engine, one, one.name)
    held = other.dequeue(engine)
    with aside(partial(drained, engine, queue)):
        until(lambda: database.value("select max(contends_until) from fq_limit_share") > 0, "it has asked for a slot")
        assert seen == []
        other.complete(engine, held)
        assert other.dequeue(engine) == []
    assert seen == [queue.name]


def test_a_stop_ends_it_before(queue: Queue, engine: Engine, database: Database, busy: Busy) -> None:
    """Whoever stops a worker that drains need not wait for the rest."""
    queue.handler()(busy)
    send(engine, queue, *range(50))
    worker = Worker(engine, queue, concurrency=1, housekeeping=False)
    with aside(partial(worker.run, drain=True)):
        busy.begun()
        worker.stop(timedelta())
    assert not is_empty(database)
