"""Stops of a worker: nothing is lost, and no attempt is counted that was not made."""

import os
import signal
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Context, Delivery, Queue, Worker
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.worker.executor import ThreadExecutor
from sqlalchemy_fairqueue.worker.timings import Prefetch
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import (
    LONG_LEASE,
    MANY_HEARTBEATS,
    Busy,
    aside,
    auntil,
    call,
    count_effects,
    given_back,
    is_empty,
    send,
    threads_of,
    until,
    write_effect,
)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, some are taken ahead, and wait."""
    monkeypatch.setattr(Prefetch, "ahead", lambda *_: 5)


@pytest.mark.usefixtures("ahead")
def test_it_waits_for_handlers(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy
) -> None:
    """A stop takes no more, tells and lets finish the handlers at work, and gives the others back, uncounted."""
    queue.handler()(busy)
    send(engine, queue, *range(20))
    worker = start(queue, concurrency=1, timings={"stale_after": 100.0})
    until(lambda: busy.contexts and worker.stats.taken > 1, "one is at work, and some are taken ahead")
    with aside(worker.stop):
        until(lambda: database.value("select count(*) from fq_message where lease_id is not null") == 1, "one is left")
        until(lambda: busy.contexts[0].stopping, "it is told")
        busy.go.set()
    assert (worker.stats.completed, given_back(database)) == (1, 19)


@pytest.mark.usefixtures("effects")
def test_the_end_of_grace(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """Handlers that do not end in time are left behind: their messages are given back, and their commits refused.

    The worker says so once: its handlers, who are told so, have not failed.
    """
    started, go, known = threading.Semaphore(0), threading.Event(), list[bool]()

    def end(context: Context) -> None:
        started.release()
        until(go.is_set, "it may end")
        known.append(context.lost)

    @queue.handler("session")
    def write(delivery: Delivery, session: Session, context: Context) -> None:
        write_effect(session, delivery)
        end(context)

    @queue.handler("checks")
    def check(_: Delivery, context: Context) -> None:
        end(context)
        context.check()

    ids = [*send(engine, queue, 1, kind="session"), *send(engine, queue, 1, kind="checks")]
    worker = start(queue, concurrency=2)
    for _ in ids:
        assert started.acquire(timeout=PATIENCE.total_seconds())
    worker.stop(timedelta())
    assert given_back(database) == 2
    go.set()
    until(lambda: not threads_of(f"{worker.name}-handler"), "their threads have ended")
    assert (known, count_effects(database), given_back(database)) == ([True, True], 0, 2)
    [said] = [record.getMessage() for record in caplog.records]
    assert "gives back messages [" in said
    assert all(f"{message_id}" in said for message_id in ids)


def test_by_a_handler(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A handler that stops its worker does not wait for itself: it ends as ever, and then the worker stops."""
    returned = threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        worker.stop()
        worker.stop()
        returned.set()

    worker = start(queue, concurrency=1)
    send(engine, queue, 1)
    until(returned.is_set, "it has returned")
    until(lambda: not threads_of(worker.name), "the worker has stopped")
    assert is_empty(database)
    assert (worker.stats.completed, worker.stats.released) == (1, 0)


def test_a_batch_that_comes_after_the_stop(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a slow dequeue brings when the worker has stopped is not begun by a handler that was left behind."""
    queue.handler()(busy)
    answered, original = threading.Event(), Consumer.dequeue

    def dequeue(*arguments: Any) -> Any:
        batch = original(*arguments)
        if batch and batch[0].payload == "late":
            until(answered.is_set, "the worker has stopped")
        return batch

    monkeypatch.setattr(Consumer, "dequeue", dequeue)
    worker = start(queue, concurrency=2)
    send(engine, queue, "first")
    busy.begun()
    send(engine, queue, "late")
    until(lambda: database.value("select count(*) from fq_message where lease_id is not null") == 2, "it is taken")
    worker.stop(timedelta())
    answered.set()
    busy.go.set()
    until(lambda: not threads_of(worker.name), "all threads have ended")
    assert [context.delivery.payload for context in busy.contexts] == ["first"]


def test_a_second_run(queue: Queue, engine: Engine, seen: list[object]) -> None:
    """A second run of a worker that runs is refused, and does not keep the first one from ending."""
    worker = Worker(engine, queue)
    with aside(worker.run):
        send(engine, queue, 1)
        until(lambda: seen, "it works")
        with pytest.raises(WorkerError, match="runs already"):
            worker.run()
        worker.stop()


def test_an_interrupted_stop(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt during a stop ends the patience, not the stop: what was at work is given back."""
    queue.handler()(busy)
    send(engine, queue, 1)
    worker = start(queue, concurrency=1)
    busy.begun()
    assert isinstance(worker._executor, ThreadExecutor)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker._executor._threads[0], "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.stop()
    assert given_back(database) == 1
    busy.go.set()
    until(lambda: not threads_of(worker.name), "all threads have ended")


async def test_too_many_threads(
    queue: Queue, engine: Engine, database: Database, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that cannot start all of its threads leaves none, handles nothing, and can be started later."""
    original = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name.endswith("-heartbeat"):
            raise RuntimeError("can't start new thread")
        original(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    later, called = threading.Event(), list[bool]()
    queue.handler()(lambda _: called.append(later.is_set()))
    send(engine, queue, 1)
    worker = make(queue)
    with pytest.raises(RuntimeError, match="new thread"):
        await call(worker.start)
    await auntil(lambda: not threads_of(worker.name), "none is left")
    monkeypatch.undo()
    later.set()
    await call(partial(worker.run, drain=True))
    assert (called, is_empty(database)) == ([True], True)


@pytest.mark.usefixtures("ahead")
def test_cancelled_before_it_begins(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy
) -> None:
    """A message that was withdrawn while it waited for a handler is not begun, and is counted."""
    queue.handler()(busy)
    worker = start(queue, concurrency=1, lease=LONG_LEASE, timings={**MANY_HEARTBEATS, "stale_after": 100.0})
    ids = send(engine, queue, *["slow"] * 3)
    until(lambda: worker.stats.taken == 3, "all are taken")
    for message_id in ids:
        queue.cancel(engine, message_id)
    until(lambda: worker.stats.cancelled == 3, "all are counted")
    busy.go.set()
    until(lambda: is_empty(database), "all are gone")
    assert len(busy.contexts) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_an_impatient_second_stop(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy, *, reentrant: bool
) -> None:
    """A second stop without grace ends a first one's patience: another thread's, and a signal handler's in its own."""
    queue.handler()(busy)
    worker = start(queue, concurrency=1)
    send(engine, queue, 1)
    busy.begun()
    before = signal.signal(signal.SIGUSR1, lambda *_: worker.stop(timedelta()))

    def hurry() -> None:
        until(lambda: busy.contexts[0].stopping, "the first stop is under way")
        if reentrant:
            os.kill(os.getpid(), signal.SIGUSR1)
        else:
            worker.stop(timedelta())

    try:
        with aside(hurry):
            worker.stop(timedelta(hours=1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (worker.stats.completed, worker.stats.released, given_back(database)) == (0, 1, 1)


async def test_its_leases(queue: Queue, engine: Engine, database: Database, make: MakeWorker) -> None:
    """A worker that has stopped is no consumer any more, whether it has worked or only waited; others stay."""
    other = Queue("other")
    for one in queue, other:
        one.handler()(lambda _: None)
    send(engine, other, "held")
    held = other.dequeue(engine, lease=LONG_LEASE)
    for messages in (0, 3):
        worker = make(queue, other, lease=LONG_LEASE)
        await call(worker.start)
        done = worker.stats.completed
        send(engine, queue, *range(messages))
        await auntil(lambda: worker.stats.completed == done + messages, "all are done")  # noqa: B023
        await auntil(
            lambda: database.value("select count(*) from fq_lease where waiting_until is not null") == 2, "it waits"
        )
        assert (queue.stats(engine).consumers, other.stats(engine).consumers) == (1, 2)
        await call(worker.stop)
        assert (queue.stats(engine).consumers, other.stats(engine).consumers) == (0, 1)
    other.complete(engine, held)


def test_the_lease_of_a_message_that_cannot_be_settled(
    handled: Queue, engine: Engine, database: Database, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease that still holds a message stays, so that the message comes back when it expires."""
    database.execute("create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$")
    database.execute(
        "create trigger refused before delete or update on fq_message for each row when (old.lease_id is not null)"
        " execute function refuse()"
    )
    send(engine, handled, 1)
    worker = start(handled, lease=LONG_LEASE, timings={"settle_at_stop": 0.1})
    until(lambda: "cannot be settled by release" in caplog.text, "it cannot be settled")
    worker.stop(timedelta())
    assert handled.stats(engine).consumers == 1
    assert database.value("select count(*) from fq_message where lease_id is not null") == 1
