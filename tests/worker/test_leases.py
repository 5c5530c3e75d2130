"""Leases that a worker keeps, and those that it knows to be lost."""

import threading
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Context, Delivery, LeaseLost, Queue, RetryPolicy, Worker
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import (
    LONG_LEASE,
    MANY_HEARTBEATS,
    count_effects,
    expire_leases,
    held_of,
    is_empty,
    outlive,
    send,
    until,
    write_effect,
)

pytestmark = pytest.mark.usefixtures("effects")

_AT_ONCE = RetryPolicy(first=timedelta())


def _taken_over(other: Queue, engine: Engine) -> bool:
    """Whether another consumer was given the message; it gives it back."""
    batch = other.dequeue(engine)
    other.release(engine, batch)
    return bool(batch)


def test_a_long_handler_keeps_its_message(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, clock: Clock
) -> None:
    """A handler may take longer than the lease: the heartbeat extends it."""
    seen: list[int] = []
    go = threading.Event()

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        seen.append(delivery.deliveries)
        until(go.is_set, "it may end")

    send(engine, queue, 1)
    workers = [start(queue, lease=LONG_LEASE, timings=MANY_HEARTBEATS) for _ in range(2)]
    until(lambda: seen, "it is at work")
    outlive(LONG_LEASE, clock, *workers)
    go.set()
    until(lambda: is_empty(database), "it is completed")
    assert seen == [1]
    assert sum(worker.stats.lost for worker in workers) == 0


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
    start(queue, lease=LONG_LEASE, timings=MANY_HEARTBEATS, retry=_AT_ONCE)
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
    start(queue, lease=LONG_LEASE, timings=MANY_HEARTBEATS, concurrency=1, retry=_AT_ONCE)
    until(lambda: is_empty(database), "all are done")
    assert sorted(set(seen)) == sorted(sent)


def test_nothing_is_taken_under_a_lost_lease(queue: Queue, engine: Engine, start: StartWorker) -> None:
    """While a handler goes on under a lease that is lost, what comes next is taken under another one."""
    seen: list[object] = []
    go = threading.Event()

    @queue.handler()
    def handle(delivery: Delivery, context: Context) -> None:
        if delivery.payload == "first":
            held_of(context).lease.lose()
        seen.append(delivery.payload)
        until(go.is_set, "it may end")

    worker = start(queue, lease=timedelta(hours=1), listen=False, poll_interval=timedelta(milliseconds=20))
    send(engine, queue, "first")
    until(lambda: seen == ["first"], "its lease is lost")
    polls = worker.stats.empty
    # The one that was under way has ended, and another one began after that.
    until(lambda: worker.stats.empty > polls + 1, "it polls again")
    send(engine, queue, "second")
    until(lambda: seen == ["first", "second"] or worker.stats.released, "the next one is taken")
    go.set()
    assert (seen, worker.stats.released) == (["first", "second"], 0)


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
    start(queue, lease=timedelta(seconds=1), retry=_AT_ONCE)
    until(told.is_set, "the handler knows")
    until(lambda: is_empty(database), "it is done by a later delivery")


def test_an_outage(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker outlives an outage, and what it had in hand is completed when the database is back."""
    started, go = threading.Event(), threading.Event()
    seen: list[int] = []

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        seen.append(delivery.message_id)
        started.set()
        until(go.is_set, "it may end")

    send(engine, queue, 1)
    worker = start(queue, lease=timedelta(hours=1))
    until(started.is_set, "the handler works")
    maintenance = create_engine(database.url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    name = database.name
    with maintenance.connect() as connection:
        connection.execute(text(f'alter database "{name}" allow_connections false'))
        connection.execute(
            text("select pg_terminate_backend(pid) from pg_stat_activity where datname = :name"), {"name": name}
        )
        go.set()
        until(lambda: worker.stats.failures > 3, "the worker has met the outage")
        connection.execute(text(f'alter database "{name}" allow_connections true'))
    maintenance.dispose()
    until(lambda: is_empty(database), "it is completed")
    engine.dispose()
    send(engine, queue, 2)
    until(lambda: is_empty(database), "the worker goes on")
    assert len(seen) == 2
    assert worker.stats.lost == 0


def test_a_used_up_pool(queue: Queue, database: Database) -> None:
    """A program that uses up its pool does not keep its worker from working: that has connections of its own."""
    engine = create_engine(database.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    seen = []
    queue.handler()(lambda delivery: seen.append(delivery.payload))
    send(engine, queue, 1)
    with engine.connect() as held, Worker(engine, queue, housekeeping=False):
        held.execute(text("select 1"))
        until(lambda: seen == [1], "it is done")
        until(lambda: is_empty(database), "it is completed")
    engine.dispose()


def test_signals_are_heard_while_all_are_at_work(
    queue: Queue, engine: Engine, database: Database, start: StartWorker
) -> None:
    """The worker applies signals while no handler is free, so that they do not pile up."""
    started, go = threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        started.set()
        until(go.is_set, "it may end")

    send(engine, queue, 1)
    start(queue, concurrency=1, timings={"hear_after": 0.05})
    until(started.is_set, "all are at work")
    for number in range(20):
        send(engine, queue, number, channel=f"customer-{number}")
    until(lambda: database.value("select count(*) from fq_signal") == 0, "all are heard")
    go.set()
    until(lambda: is_empty(database), "all are done")
