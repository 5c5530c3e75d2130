"""What pages warn of is so: each test is a sentence of a page that readers would not expect."""

import asyncio
from datetime import timedelta
from threading import Barrier

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, RetryPolicy, Worker
from tests.fixtures.database import Database

ONCE = RetryPolicy(max_attempts=1)


def test_a_handler_holds_a_connection_from_its_first_statement(database: Database) -> None:
    """workers.md: a slow call before the first statement holds no transaction; one behind it may be cut off."""
    engine = create_engine(database.url, connect_args={"options": "-c idle_in_transaction_session_timeout=200ms"})
    queue = Queue("documents")
    held: list[int] = []

    @queue.handler
    def handle(delivery: Delivery, session: Session) -> None:
        held.append(engine.pool.checkedout())  # type: ignore[attr-defined]
        backend = session.scalar(text("select pg_backend_pid() where :payload = 1"), {"payload": delivery.payload})
        held.append(engine.pool.checkedout())  # type: ignore[attr-defined]
        while database.value("select 1 from pg_stat_activity where pid = :pid", pid=backend):
            pass

    queue.enqueue(database.own, channel="a", payload=1)
    Worker(engine, queue, retry=ONCE).run(drain=True)
    assert held == [0, 1]
    [letter] = queue.dead_letters.list(engine)
    assert "terminating connection due to idle-in-transaction timeout" in (letter.error or "")
    engine.dispose()


@pytest.mark.parametrize("spare", [0, 1])
def test_calls_on_the_engine_within_handlers_need_one_connection_more(database: Database, spare: int) -> None:
    """sizing.md: handlers that all hold a connection of the pool wait for one another's in vain, unless one is left."""
    engine = create_engine(database.url, pool_size=2 + spare, max_overflow=0, pool_timeout=1 if spare == 0 else 60)
    queue, other = Queue("documents"), Queue("other")
    both = Barrier(2)

    @queue.handler
    def handle(delivery: Delivery, session: Session) -> None:
        session.execute(text("select 1"))
        both.wait(60)
        try:
            other.enqueue(engine, channel="a", payload=delivery.payload)
        finally:
            both.wait(60)

    for _ in range(2):
        queue.enqueue(engine, channel="a", payload=1)
    Worker(engine, queue, retry=ONCE, concurrency=2).run(drain=True)
    if spare:
        assert other.stats(engine).ready == 2
    else:
        assert {PoolTimeout.__name__ in (letter.error or "") for letter in queue.dead_letters.list(engine)} == {True}
    engine.dispose()


def test_async_handlers_that_query_last_need_few_connections(database: Database) -> None:
    """sizing.md: more handlers than the pool has connections wait at once, and then all of them commit."""
    queue = Queue("documents")

    async def run() -> None:
        engine = create_async_engine(database.url, pool_size=2, max_overflow=0)
        waiting: list[int] = []
        all_wait = asyncio.Event()

        @queue.handler
        async def handle(delivery: Delivery, session: AsyncSession) -> None:
            waiting.append(delivery.payload)
            if len(waiting) == 6:
                all_wait.set()
            await all_wait.wait()
            await session.execute(text("select 1"))

        for number in range(6):
            await queue.enqueue(engine, channel="a", payload=number)
        worker = AsyncWorker(engine, queue, concurrency=6, retry=ONCE)
        await worker.run(drain=True)
        assert worker.stats.completed == 6
        await engine.dispose()

    asyncio.run(run())


@pytest.mark.parametrize(("estimate", "held"), [(1, 2), (10_000, 1)])
def test_running_handlers_are_charged_their_estimate(engine: Engine, estimate: int, held: int) -> None:
    """cost.md: shared by seconds, what is out was charged two seconds where nothing is known, or what it names."""
    queue = Queue("documents")
    queue.configure(engine, fair_by="seconds")
    for _ in range(8):
        queue.enqueue(engine, channel="long", payload=1, cost=estimate)
        queue.enqueue(engine, channel="short", payload=1)
    taken = []
    for _ in range(8):
        [delivery] = queue.dequeue(engine)
        taken.append(delivery.channel)
        if delivery.channel == "short":
            queue.complete(engine, delivery, cost=1)
    assert taken.count("long") == held


def test_ready_counts_what_no_worker_can_take(engine: Engine) -> None:
    """deploy.md: messages of a paused channel or queue, and those beyond a limit, are ready and no work for workers."""
    queue = Queue("documents")
    for channel in ("paused", "limited"):
        for _ in range(3):
            queue.enqueue(engine, channel=channel, payload=1)
    queue.pause(engine, "paused")
    queue.configure_channel(engine, "limited", max_concurrency=1)
    queue.dequeue(engine, limit=10)
    stats = queue.stats(engine)
    assert (stats.ready, stats.leased + stats.deliverable) == (5, 1)
    queue.pause(engine)
    assert queue.stats(engine).ready == 5


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)])
def test_only_a_delay_costs_a_message_its_place(engine: Engine, delay: timedelta | None) -> None:
    """guarantees.md: a message that is tried again without a delay is the next of its channel."""
    queue = Queue("documents")
    for number in range(2):
        queue.enqueue(engine, channel="a", payload=number)
    [delivery] = queue.dequeue(engine)
    queue.retry(engine, delivery, delay=delay)
    [following] = queue.dequeue(engine)
    assert following.payload == (0 if delay is None else 1)


def test_a_replacement_is_handled_beside_the_handler_that_runs(engine: Engine) -> None:
    """dedupe.md: while a consumer holds the message, another one gets the one that replaces it at once."""
    queue = Queue("documents")
    queue.enqueue(engine, channel="a", payload=1, key="k")
    [first] = queue.dequeue(engine)
    queue.enqueue(engine, channel="a", payload=2, key="k", on_duplicate="replace")
    [second] = queue.dequeue(engine)
    assert (first.payload, second.payload) == (1, 2)
