"""Leases that a worker keeps, and those that it knows to be lost."""

import threading
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Context, Delivery, LeaseLost, Queue, Worker
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import (
    AT_ONCE,
    LONG_LEASE,
    MANY_HEARTBEATS,
    Busy,
    count_effects,
    expire_leases,
    held_of,
    is_empty,
    outlive,
    polled_again,
    send,
    until,
    write_effect,
)

pytestmark = pytest.mark.usefixtures("effects")


def _taken_over(other: Queue, engine: Engine) -> bool:
    """Whether another consumer was given the message; it gives it back."""
    batch = other.dequeue(engine)
    other.release(engine, batch)
    return bool(batch)


def test_a_long_handler_keeps_its_message(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, clock: Clock, busy: Busy
) -> None:
    """A handler may take longer than the lease: the heartbeat extends it."""
    queue.handler()(busy)
    send(engine, queue, 1)
    workers = [start(queue, lease=LONG_LEASE, timings=MANY_HEARTBEATS) for _ in range(2)]
    busy.begun()
    outlive(LONG_LEASE, clock, *workers)
    busy.go.set()
    until(lambda: is_empty(database), "it is completed")
    assert (len(busy.contexts), sum(worker.stats.lost for worker in workers)) == (1, 0)


def test_a_lost_lease_is_told(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """When the lease is gone the handler's context says so, its verbs fail, and its writes are not committed."""
    met: list[BaseException] = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        write_effect(session, delivery)
        if delivery.deliveries == 1:
            expire_leases(database)
            until(lambda: context.lost, "it is told")
            for verb in (
                context.check,
                lambda: queue.complete(engine, delivery),
                lambda: queue.retry(session, delivery),
            ):
                with pytest.raises(LeaseLost) as raised:
                    verb()
                met.append(raised.value)

    send(engine, queue, 1)
    start(queue, lease=LONG_LEASE, timings=MANY_HEARTBEATS, retry=AT_ONCE)
    until(lambda: len(met) == 3, "the first handler has met the loss")
    until(lambda: is_empty(database), "it is done by a later delivery")
    assert count_effects(database) == 1


def test_a_late_commit_is_refused_by_the_database(
    queue: Queue, engine: Engine, database: Database, start: StartWorker
) -> None:
    """A worker that does not know yet that somebody else has its message cannot commit either."""

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        if delivery.deliveries == 1:
            expire_leases(database)
            # Another consumer takes it over, and gives it back.
            other = Queue("documents")
            until(partial(_taken_over, other, engine), "it is taken over")

    send(engine, queue, 1)
    worker = start(queue, concurrency=1, prefetch=0)
    until(lambda: is_empty(database), "it is done by a later delivery")
    assert count_effects(database) == 1
    until(lambda: worker.stats.lost == 1, "the loss is counted")


def test_what_waits_under_a_lost_lease_is_not_started(
    queue: Queue, engine: Engine, database: Database, start: StartWorker
) -> None:
    """Of a lost batch only what had begun is begun; the rest comes back, each message done once."""
    seen: list[int] = []

    @queue.handler()
    def handle(delivery: Delivery, context: Context) -> None:
        if not seen:
            expire_leases(database)
            until(lambda: context.lost, "it is told")
        seen.append(delivery.message_id)

    sent = send(engine, queue, *range(5))
    start(queue, lease=LONG_LEASE, timings=MANY_HEARTBEATS, concurrency=1, retry=AT_ONCE)
    until(lambda: is_empty(database), "all are done")
    assert sorted(set(seen)) == sorted(sent)


def test_nothing_is_taken_under_a_lost_lease(queue: Queue, engine: Engine, start: StartWorker, busy: Busy) -> None:
    """While a handler goes on under a lease that is lost, what comes next is taken under another one."""
    queue.handler()(busy)
    worker = start(queue, lease=timedelta(hours=1), listen=False, poll_interval=timedelta(milliseconds=20))
    send(engine, queue, "first")
    busy.begun()
    held_of(busy.contexts[0]).lease.lose()
    polled_again(worker)
    send(engine, queue, "second")
    until(lambda: len(busy.contexts) == 2 or worker.stats.released, "the next one is taken")
    busy.go.set()
    assert ([context.lost for context in busy.contexts], worker.stats.released) == ([True, False], 0)


def test_a_slow_database_is_noticed(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """When the lease cannot be extended, because its row is locked, the handler is told by the worker's own clock."""
    told = threading.Event()
    locked = threading.Event()

    @queue.handler()
    def handle(_: Delivery, context: Context) -> None:
        if not locked.is_set():
            with engine.connect() as connection:
                connection.execute(text("select from fq_lease for update"))
                locked.set()
                until(lambda: context.lost, "it is told")
            told.set()

    send(engine, queue, 1)
    start(queue, lease=timedelta(seconds=1), retry=AT_ONCE)
    until(told.is_set, "the handler knows")
    until(lambda: is_empty(database), "it is done by a later delivery")


def test_a_used_up_pool(queue: Queue, database: Database, seen: list[object]) -> None:
    """A program that uses up its pool does not keep its worker from working: that has connections of its own."""
    engine = create_engine(database.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    send(engine, queue, 1)
    with engine.connect() as held, Worker(engine, queue, housekeeping=False):
        held.execute(text("select 1"))
        until(lambda: seen == [1] and is_empty(database), "it is done")
    engine.dispose()


def test_signals_are_heard_while_all_are_at_work(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy
) -> None:
    """The worker applies signals while no handler is free, so that they do not pile up."""
    queue.handler()(busy)
    send(engine, queue, 1)
    start(queue, concurrency=1, timings={"hear_after": 0.05})
    busy.begun()
    for number in range(20):
        send(engine, queue, number, channel=f"customer-{number}")
    until(lambda: database.value("select count(*) from fq_signal") == 0, "all are heard")
    busy.go.set()
    until(lambda: is_empty(database), "all are done")
