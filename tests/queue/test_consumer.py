"""Leases that a queue keeps between dequeues: threads may share them, and they may be lost or forgotten."""

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Lease, Queue
from sqlalchemy_fairqueue.queue import consumer as consumers
from tests.fixtures.database import Database
from tests.queue.seeds import seed


def _seed(queue: Queue, engine: Engine, number: int) -> None:
    seed(queue, engine, *(f"c{one % 10}" for one in range(number)))


def test_threads_record_on_sessions_of_their_own(queue: Queue, engine: Engine, database: Database) -> None:
    """Sessions in several threads keep their work apart."""

    def work(thread: int) -> None:
        for round_ in range(20):
            with Session(engine) as session:
                queue.enqueue(session, channel=f"t{(thread + round_) % 4}", payload=thread)
                with session.begin_nested():
                    queue.enqueue(session, channel=f"t{(thread + round_ + 1) % 4}", payload=thread)
                if round_ % 2:
                    session.rollback()
                else:
                    session.commit()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert database.value("select count(*) from fq_message") == 4 * 10 * 2


def test_a_copy_takes_no_leases_over(queue: Queue, engine: Engine) -> None:
    """A queue goes to another process, and is copied, with all but what its dequeues remember."""
    _seed(queue, engine, 3)
    [first] = queue.dequeue(engine)
    for again in (copy.copy(queue), pickle.loads(pickle.dumps(queue))):  # noqa: S301 - our own
        assert (again.name, again.schema, again.max_attempts) == (queue.name, queue.schema, queue.max_attempts)
        [other] = again.dequeue(engine)
        assert other.message_id != first.message_id
        assert other.lease.id != first.lease.id
        again.complete(engine, other)


def test_a_shorter_lease_is_another(queue: Queue, engine: Engine) -> None:
    """Who asks for a second after hours, or after an extension, is not given hours: others would wait as long."""
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    _seed(queue, engine, 6)
    [long] = queue.dequeue(engine, lease=hour)
    [short] = queue.dequeue(engine, lease=second)
    assert long.lease.expires_at - short.lease.expires_at > hour / 2
    [again] = queue.dequeue(engine, lease=hour)
    until = queue.extend(engine, again, lease=2 * hour)
    [after] = queue.dequeue(engine, lease=hour)
    assert until - after.lease.expires_at > hour / 2
    [joined] = queue.dequeue(engine, lease=hour)
    assert joined.lease.id == after.lease.id


def test_a_lease_that_is_forgotten_during_a_dequeue_stays_forgotten(queue: Queue, engine: Engine) -> None:
    """Who extends it meanwhile, in another thread, has made it longer than the next dequeue asks for."""
    _seed(queue, engine, 3)
    [first] = queue.dequeue(engine)

    @event.listens_for(engine, "after_cursor_execute")
    def extended(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "fq_dequeue" in statement:
            queue._consumers[engine].forget_leases(first.lease.id)

    [second] = queue.dequeue(engine)
    event.remove(engine, "after_cursor_execute", extended)
    [third] = queue.dequeue(engine)
    assert second.lease.id == first.lease.id
    assert third.lease.id != first.lease.id


def test_threads_share_a_queue(queue: Queue, engine: Engine) -> None:
    """Each gets messages that no other one got, and the lease it asked for; those that ask for the same share one."""
    _seed(queue, engine, 200)
    asked = {timedelta(seconds=1): set[int](), timedelta(hours=1): set[int]()}

    def work(lease: timedelta) -> list[int]:
        taken = []
        for _ in range(50):
            for delivery in queue.dequeue(engine, lease=lease):
                left = delivery.lease.expires_at - datetime.now(UTC)
                assert (left > timedelta(minutes=1)) is (lease > timedelta(minutes=1))
                asked[lease].add(delivery.lease.id)
                taken.append(delivery.message_id)
                queue.complete(engine, delivery)
        return taken

    with ThreadPoolExecutor(4) as threads:
        taken = [one for part in threads.map(work, [*asked] * 2) for one in part]
    assert len(taken) == len({*taken}) > 50
    # Threads that begin at once make one each.
    assert len(asked[timedelta(hours=1)]) <= 4


def test_a_lease_counts_from_before_its_dequeue_was_sent(
    queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the answer takes, its keeper is told a time at which the lease cannot have begun yet."""
    _seed(queue, engine, 1)
    now = 100.0
    kept: list[float] = []

    def keep(lease: Lease, sent_at: float) -> Lease:
        kept.append(sent_at)
        return lease

    def take_long(*_: object) -> None:
        nonlocal now
        now += 5

    monkeypatch.setattr(consumers, "monotonic", lambda: now)
    event.listen(engine, "before_cursor_execute", take_long)
    consumer = consumers.Consumer(queue._target, queue.codec, "me", keep)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert consumer.dequeue(connection, 1, timedelta(seconds=30))
    event.remove(engine, "before_cursor_execute", take_long)
    assert (kept, now) == ([100.0], 105.0)


def test_a_forked_child_starts_anew(queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another process the consumer takes another name and another lease."""
    _seed(queue, engine, 2)
    [parents] = queue.dequeue(engine)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    [childs] = queue.dequeue(engine)
    assert parents.lease.id != childs.lease.id
    assert parents.lease.consumer != childs.lease.consumer


def test_a_broken_connection_is_forgotten(queue: Queue, engine: Engine, database: Database) -> None:
    """After an error the next dequeue starts anew, and finds what is ready."""
    _seed(queue, engine, 2)
    [first] = queue.dequeue(engine)

    def cut(*_: object) -> None:
        database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )

    event.listen(engine, "before_cursor_execute", cut, once=True)
    with pytest.raises(Exception, match=r"terminat|closed|connection"):
        queue.dequeue(engine)
    [second] = queue.dequeue(engine)
    assert second.lease.id != first.lease.id
    queue.complete(engine, [first, second])


def test_many_signals(queue: Queue, engine: Engine, database: Database) -> None:
    """More signals than one call hears are heard by the next ones, which it asks for at once."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "select count(e) from generate_series(1, 1500) n, fq_enqueue('documents', array['c' || mod(n, 5)], '{k}',"
            " '{1}', '{null}', '{null}', '{null}', '{null}', '{null}', '{3}') e"
        )
    assert database.value("select count(*) from fq_signal") == 1_500
    first = queue.dequeue(engine)
    assert (len(first), first.due_in) == (1, timedelta())
    assert 0 < database.value("select count(*) from fq_signal") < 1_500
    queue.dequeue(engine)
    assert database.value("select count(*) from fq_signal") == 0


def test_one_object_on_two_databases(queue: Queue, engine: Engine) -> None:
    """A queue keeps what it remembers for each engine apart."""
    _seed(queue, engine, 2)
    other = engine.execution_options()
    [first] = queue.dequeue(engine)
    [second] = queue.dequeue(other)
    assert first.lease.id != second.lease.id
