"""Idle workers, which are woken by a commit or by the clock, or poll."""

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from operator import eq
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue, Release, Worker
from sqlalchemy_fairqueue.database.drivers import Listener
from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.worker import wakeups
from sqlalchemy_fairqueue.worker.timings import PollSchedule, Timings
from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger, WaitRegistration
from tests.fixtures.database import Database, install
from tests.fixtures.server import programs
from tests.worker.conftest import StartWorker
from tests.worker.helpers import LISTENERS, is_empty, retimed, send, until, waiting

_NEVER = timedelta(hours=1)
# select() knows no file above 1,023.
_FILES = 1100
_END_LISTENERS = LISTENERS.replace("count(*)", "pg_terminate_backend(pid)")
Idle = Callable[..., Worker]


@pytest.fixture
def idle(queue: Queue, database: Database, start: StartWorker) -> Idle:
    """Start a worker that waits to be woken, and else would poll in an hour: ``idle(poll_drift=1e9)``."""

    def start_one(**timings: float) -> Worker:
        worker = start(queue, poll_interval=_NEVER, timings=timings)
        until(partial(waiting, database), "it waits")
        return worker

    return start_one


def test_woken(queue: Queue, engine: Engine, database: Database, start: StartWorker, seen: list[object]) -> None:
    """An idle worker polls a few times and waits; it would wait for an hour, and is woken by a commit.

    However seldom it polls, a dead one is named by notifications for a minute at most.
    """
    worker = start(queue, poll_interval=_NEVER)
    for number in range(3):
        until(partial(waiting, database), "it waits")
        assert number or worker.stats.dequeues < 30
        assert database.value("select max(waiting_until) - fq_now() < 62000000 from fq_lease")
        send(engine, queue, number)
        until(partial(eq, seen, list(range(number + 1))), "it is woken")
    until(lambda: is_empty(database), "all are completed")


def test_another_is_named(queue: Queue, engine: Engine, database: Database, idle: Idle, seen: list[object]) -> None:
    """What wakes consumers that have died is taken by a worker that waits, too."""
    worker = idle()
    # A notification names one of the eight waits that last longest.
    database.execute(
        "select fq_wait('documents', 'dead', null, 10000000000 + number) from generate_series(1, 8) number"
    )
    for number in range(3):
        send(engine, queue, number)
        until(partial(eq, seen, list(range(number + 1))), "it takes what a dead one was woken for")
    until(lambda: worker.stats.woken >= 3, "it has heard of all")


def test_who_is_named(queue: Queue, engine: Engine) -> None:
    """A worker polls at once if it was named, later if another was, and all queues if some may be missed."""
    options = replace(Worker(engine, queue)._options, clock=lambda: 100.0)
    waits = WaitRegistration(cast("Any", None), options, FetchTrigger(options.clock))
    ours, theirs, silent = (
        cast("Any", SimpleNamespace(waiting_lease=lease, polls=PollSchedule(5.0, Timings()))) for lease in (5, 6, None)
    )
    for topic, one in ("ours", ours), ("theirs", theirs), ("silent", silent):
        one.polls.wait_begun(100.0, 111.0)
        one.polls.nothing(100.0, None)
        waits.topics[topic] = one
    waits.notified({"ours": {"7", "5"}, "theirs": {"5"}, "nobody's": {"5"}})
    waits.notified({"nobody's": {"5"}})
    assert [one.polls.next_at for one in (ours, theirs, silent)] == [100.0, 100.02, 100.2]
    waits.notified(None)
    assert options.stats.woken == 2
    assert [one.polls.next_at for one in (ours, theirs, silent)] == [100.0] * 3
    # Whoever is there now may not know of the waits.
    assert [one.polls.waiting_until for one in (ours, theirs, silent)] == [0, 0, 0]


@pytest.fixture
def more_open_files() -> Iterator[None]:
    """The most open files that this machine allows a process, where most processes have 1,024."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed[1], allowed[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, allowed)


@pytest.mark.skipif(
    0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * _FILES,
    reason="this machine allows no process so many open files",
)
@pytest.mark.usefixtures("more_open_files")
def test_many_open_files(queue: Queue, engine: Engine, idle: Idle, seen: list[object]) -> None:
    """A process with thousands of open files hears notifications as any other."""
    with contextlib.ExitStack() as files:
        for _ in range(_FILES):
            files.enter_context(Path(os.devnull).open("rb"))
        idle()
        send(engine, queue, 1)
        until(lambda: seen == [1], "it is woken")


def test_one_listener_a_process(engine: Engine, database: Database, start: StartWorker) -> None:
    """All workers of a process share one listening connection, and each hears of its own queues."""
    heard: list[str] = []
    queues = [Queue(name) for name in ("one", "two", "three")]
    for queue in queues:
        queue.handler()(lambda delivery: heard.append(delivery.queue))
    start(queues[0], poll_interval=_NEVER)
    start(queues[1], queues[2], poll_interval=_NEVER)
    until(lambda: waiting(database) == 3, "all wait")
    assert database.value(LISTENERS) == 1
    for queue in queues:
        send(engine, queue, 1)
        until(lambda: heard[-1:] == [queue.name], "it is heard")  # noqa: B023
    assert len(heard) == 3


def test_the_last_subscriber_leaves(
    database: Database, idle: Idle, monkeypatch: pytest.MonkeyPatch, seen: list[object]
) -> None:
    """The listener is told to end before it may: it closes what it is told through."""
    worker = idle()
    (listener,) = wakeups._shared.values()
    own = listener._stop_writer

    class Late:
        """A socket whose message comes when the thread may have ended."""

        close = own.close

        @staticmethod
        def send(data: bytes) -> int:
            if listener._stopping:
                # The listener may be as quick as this.
                own.send(data)
                listener._thread.join()
            return own.send(data)

    monkeypatch.setattr(listener, "_stop_writer", Late)
    worker.stop()
    listener._thread.join()
    until(lambda: database.value(LISTENERS) == 0, "the server has seen it go")
    # No file is left behind.
    assert [one.fileno() for one in (listener._stop_reader, own)] == [-1, -1]
    assert not seen


def test_a_listener_that_cannot_come_back(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    idle: Idle,
    monkeypatch: pytest.MonkeyPatch,
    seen: list[object],
) -> None:
    """As long as the listening connection is away a worker that waited polls as one that cannot be woken."""
    # Once it waits, it does not poll again by itself.
    worker = idle(poll_drift=1e9)
    assert worker._runtime is not None
    [served] = worker._runtime.queues
    (listener,) = wakeups._shared.values()

    def refuse(_: object) -> None:
        raise ConnectionError("too many clients")

    monkeypatch.setattr(wakeups.Listening, "_listen", refuse)
    database.execute(_END_LISTENERS)
    until(lambda: listener._backoff.failures > 1, "it cannot listen")
    until(lambda: served.polls.interval <= 1, "it polls")
    send(engine, queue, 1)
    until(lambda: seen == [1], "it is found")


def test_a_lost_listener(queue: Queue, engine: Engine, database: Database, idle: Idle, seen: list[object]) -> None:
    """When the listening connection is lost the worker listens again, and nothing is missed meanwhile."""
    idle()
    database.execute(_END_LISTENERS)
    send(engine, queue, 1)
    until(lambda: seen == [1], "it is found")
    until(lambda: database.value(LISTENERS) == 1, "it listens again")
    until(partial(waiting, database), "it waits again")
    send(engine, queue, 2)
    until(lambda: seen == [1, 2], "it is woken")


def test_a_server_that_does_not_know_of_the_wait(
    queue: Queue, engine: Engine, database: Database, idle: Idle, seen: list[object]
) -> None:
    """After all connections were lost, as in a failover, a worker registers its wait anew."""
    idle(poll_drift=1e9)
    with engine.begin() as failing_over:
        failing_over.execute(text("delete from fq_lease"))
        failing_over.execute(
            text(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        )
    until(partial(waiting, database), "it waits again")
    send(engine, queue, 1)
    until(lambda: seen == [1], "it is woken")


def test_a_listener_through_a_transaction_pooler(
    queue: Queue,
    start: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seen: list[object],
) -> None:
    """A connection that does not listen, though the server has answered, counts as none: the worker polls."""
    listen = Listener.listen

    def forgetful(listener: Listener, application_name: str) -> None:
        listen(listener, application_name)
        # The next transaction has another connection to the server.
        listener._execute("unlisten *")

    monkeypatch.setattr(Listener, "listen", forgetful)
    worker = start(queue, poll_interval=_NEVER)
    assert worker._runtime is not None
    [served] = worker._runtime.queues
    until(lambda: "a transaction pooler is in between" in caplog.text, "it is logged")
    until(lambda: worker.stats.empty > 5, "it polls")
    assert served.polls.interval <= 1
    assert served.waiting_lease is None
    assert not seen


def test_a_queue_that_notifies_nobody(engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker of a queue whose producers wake nobody polls it each second, and waits for those that do."""
    quiet, other, seen = Queue("documents", notify=False), Queue("other"), list[object]()
    for queue in quiet, other:
        queue.handler()(lambda delivery: seen.append(delivery.payload))
    worker = start(quiet, other, poll_interval=_NEVER)
    until(lambda: waiting(database) == 2, "it waits")
    assert worker._runtime is not None
    assert [served.polls.interval <= 1 for served in worker._runtime.queues if served.queue is quiet] == [True]
    assert [served.polls.interval <= 1 for served in worker._runtime.queues if served.queue is other] == [False]
    send(engine, quiet, 1)
    until(lambda: seen == [1], "it is found")
    send(engine, Queue("documents"), 2)
    until(lambda: seen == [1, 2], "it is woken")


def test_woken_at_the_hour(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker that would wait for an hour wakes by itself when the next scheduled message is due, and so is one that
    a handler has put off.
    """
    handled: list[tuple[str, int]] = []

    @queue.handler()
    def handle(delivery: Delivery) -> Release | None:
        handled.append((delivery.payload, delivery.deliveries))
        return Release(delay=timedelta(milliseconds=200)) if handled == [("put off", 1)] else None

    send(engine, queue, "put off")
    send(engine, queue, "scheduled", delay=timedelta(milliseconds=300))
    start(queue, poll_interval=_NEVER)
    until(lambda: is_empty(database), "both are done")
    assert sorted(handled) == [("put off", 1), ("put off", 2), ("scheduled", 1)]


def test_without_notifications(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, seen: list[object]
) -> None:
    """A worker that cannot be woken polls, opens no listening connection and registers no wait."""
    worker = start(queue, listen=False, poll_interval=timedelta(milliseconds=50))
    until(lambda: worker.stats.empty > 5, "it is idle")
    send(engine, queue, 1)
    until(lambda: seen == [1], "it is found")
    assert database.value(LISTENERS) == 0
    assert not waiting(database)


def test_an_open_change_of_a_channel(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, seen: list[object]
) -> None:
    """A worker comes back ever later for a channel that an open transaction has changed, and takes it afterwards."""
    worker = start(queue, poll_interval=_NEVER)
    changes: list[Callable[[Session], object]] = [
        lambda session: queue.pause(session, "customer-1"),
        lambda session: queue.configure_channel(session, "customer-1", max_concurrency=5),
    ]
    send(engine, queue, 0)
    until(lambda: seen == [0], "the channel is known")
    for number, change in enumerate(changes, 1):
        until(partial(waiting, database), "it waits")
        with Session(engine) as session:
            change(session)
            session.flush()
            before = worker.stats.dequeues
            send(engine, queue, number)
            assert worker._runtime is not None
            [served] = worker._runtime.queues
            until(lambda: served.polls.next_at - worker._options.clock() > 0.5, "it comes back later")  # noqa: B023
            assert worker.stats.dequeues - before < 40
            session.rollback()
        until(partial(eq, seen, list(range(number + 1))), "it is taken")


def test_several_workers(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, seen: list[object]
) -> None:
    """Workers of one queue share its work, and stop one by one without losing any."""
    workers = [start(queue, concurrency=2) for _ in range(3)]
    send(engine, queue, *range(100))
    until(lambda: len(seen) > 20, "they work")
    for worker in workers[:2]:
        worker.stop()
    until(lambda: is_empty(database), "the last one does the rest")
    assert sorted(seen, key=str) == sorted(range(100), key=str)


_WAITING = "select id || ':' from fq_lease where waiting_until > fq_now()"


@pytest.fixture
def own(private_server: Callable[..., Server]) -> Iterator[Engine]:
    """An engine to a server with room for few notifications."""
    url = private_server(settings={"max_notify_queue_pages": "64"}).url()
    own = create_engine(url)
    with own.begin() as connection:
        install(connection)
    yield own
    own.dispose()


def _fill(database: Database) -> None:
    with psycopg.connect(database.conninfo, autocommit=True) as filler:
        for _ in range(10_000):
            try:
                filler.execute("select pg_notify('other', repeat('x', 7000))")
            except psycopg.errors.ProgramLimitExceeded:
                return
    pytest.fail("the queue was never full")


@pytest.mark.skipif(
    int(programs().version.partition(".")[0]) < 17,
    reason="before PostgreSQL 17 the notification queue has 8 GB, which no test fills",
)
def test_a_full_queue_of_notifications_fails_no_commit(queue: Queue, own: Engine, seen: list[object]) -> None:
    """Producers commit, the worker polls meanwhile; when there is room again it waits and is notified."""
    small = Database(own.url)
    worker = retimed(Worker(own, queue, housekeeping=False), silence=0.1)
    with worker, psycopg.connect(small.conninfo) as open_listener:
        until(lambda: small.value(_WAITING), "it waits")
        open_listener.execute("listen other")
        open_listener.commit()
        open_listener.execute("select 1")
        _fill(small)
        assert not small.value("select fq_wake('documents')")
        assert worker._runtime is not None
        [served] = worker._runtime.queues
        until(lambda: served.polls.interval <= 1, "it has noticed")
        for number in range(3):
            send(own, queue, number)
        until(lambda: sorted(seen, key=str) == [0, 1, 2], "all are found")
        open_listener.rollback()
        open_listener.execute("unlisten *")
        open_listener.commit()

        until(lambda: served.polls.waiting_until, "it waits again")
        with psycopg.connect(small.conninfo, autocommit=True) as ours:
            ours.execute("listen fairqueue")
            woken = worker.stats.woken
            send(own, queue, 3)
            [notification] = ours.notifies(timeout=60, stop_after=1)
        assert notification.payload.startswith(small.value(_WAITING))
        until(lambda: worker.stats.woken > woken, "it is notified")
        until(lambda: 3 in seen, "it takes the message")
    small.own.dispose()
