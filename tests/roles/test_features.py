"""Schedules, results and requests to stop by roles: who does which part, and within which bounds."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from sqlalchemy_fairqueue import MessageFailed, Queue, ResultCancelled, ResultNotReady, Worker
from sqlalchemy_fairqueue.errors import NotGranted
from tests.fixtures.clock import Clock
from tests.fixtures.options import PATIENCE
from tests.roles.conftest import SCHEMA, Installation
from tests.worker.helpers import LONG_LEASE, retimed, until

HOUR = timedelta(hours=1)
MINE = Queue("mine", schema=SCHEMA, check_kinds=False)


def queue() -> Queue:
    """The queue, as each program makes it; its handler is for no message of the tests."""
    made = Queue("documents", schema=SCHEMA, check_kinds=False)
    made.handler("none")(repr)
    return made


def schedule(engine: Engine, channel: str = "customer-1") -> None:
    """Make a schedule."""
    queue().schedules.set(engine, "hourly", channel=channel, every=HOUR)


def refused(*calls: Callable[[], Any]) -> None:
    """Each call is refused for want of a privilege."""
    for call in calls:
        with pytest.raises(ProgrammingError, match="permission denied"):
            call()


def test_schedules(jobs: Installation) -> None:
    """A producer makes schedules, an operator looks after them, a monitor lists them; a consumer does none of it."""
    kinds = ("producer", "operator", "monitor", "consumer")
    web, ops, monitor, worker = (jobs.role(kind, kind).engine for kind in kinds)
    refused(*(partial(schedule, engine) for engine in (ops, monitor, worker)))
    schedule(web)
    schedules, hourly = queue().schedules, {"name": "hourly", "channel": "customer-1"}
    for engine in (web, ops, monitor):
        assert [one.name for one in schedules.list(engine)] == ["hourly"]
    refused(partial(schedules.list, worker), partial(schedules.pause, monitor, **hourly))
    refused(partial(schedules.run, worker, **hourly))
    for engine in (web, ops):
        schedules.pause(engine, **hourly)
        schedules.resume(engine, **hourly)
        assert schedules.run(engine, **hourly)
    schedules.remove(ops, **hourly)
    assert schedules.list(web) == []


def test_schedules_of_a_channel(jobs: Installation) -> None:
    """It makes, changes and sees the schedules of its channel, and none of another."""
    own = jobs.role("own", "producer", queues=["documents"], channels=["customer-1"])
    schedule(own.engine)
    schedule(jobs.owner, "customer-2")
    theirs = queue().schedules
    assert [one.channel for one in theirs.list(own.engine, channel="customer-1")] == ["customer-1"]
    with pytest.raises(NotGranted):
        schedule(own.engine, "customer-2")
    for verb in (theirs.remove, theirs.pause, theirs.run):
        with pytest.raises(NotGranted):
            verb(own.engine, "hourly", channel="customer-2")
    for channel in ("customer-2", None):
        with pytest.raises(NotGranted):
            theirs.list(own.engine, channel=channel)
    assert len(theirs.list(jobs.owner)) == 2


def test_slots_are_run_by_a_consumer(jobs: Installation, clock_of: Callable[..., Clock]) -> None:
    """A worker whose role is a consumer and nothing else runs the slots of a producer's schedule."""
    clock = clock_of(jobs.database, schema=SCHEMA)
    web, worker = jobs.role("web", "producer").engine, jobs.role("worker", "consumer")
    jobs.database.execute(f'grant usage on sequence {SCHEMA}.test_clock to "{worker.name}"')
    jobs.database.execute(f'grant select on {SCHEMA}.test_clock to "{worker.name}"')
    schedule(web)
    clock.advance(HOUR)
    with retimed(Worker(worker.engine, queue(), lease=LONG_LEASE), schedules_every=0.05):
        count = f"select count(*) from {SCHEMA}.fq_schedule_slot"
        until(lambda: jobs.database.value(count) == 1, "the slot is run")


def test_a_worker_that_may_enqueue_to_some_channels_only(
    jobs: Installation, clock_of: Callable[..., Clock], caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves the schedules of other channels to other workers, says so, and notes no problem."""
    clock = clock_of(jobs.database, schema=SCHEMA)
    worker = jobs.role("worker", "consumer")
    jobs.grant(worker.name, "producer", channels=["customer-1"])
    for channel in ("customer-1", "customer-2"):
        schedule(jobs.owner, channel)
    clock.advance(HOUR)
    with retimed(Worker(worker.engine, queue(), lease=LONG_LEASE), schedules_every=0.05):
        until(lambda: "leaves schedule hourly of channel customer-2" in caplog.text, "it says so")
        count = f"select count(*) from {SCHEMA}.fq_schedule_slot"
        until(lambda: jobs.database.value(count) == 1, "its own slot is run")
    assert [one.problem for one in queue().schedules.list(jobs.owner)] == [None, None]
    with retimed(Worker(jobs.owner, queue(), lease=LONG_LEASE), schedules_every=0.05):
        until(lambda: jobs.database.value(count) == 2, "another worker runs it")


def test_results(jobs: Installation) -> None:
    """A producer enqueues, waits, cancels and reads; a consumer completes and buries; neither does the other's part."""
    MINE.configure(jobs.owner, result_retention=HOUR)
    producer, consumer = jobs.role("producer", "producer"), jobs.role("consumer", "consumer")
    ids = [MINE.enqueue(producer.engine, channel="a", payload=each).message_id or 0 for each in range(3)]
    deliveries = MINE.dequeue(consumer.engine, limit=2)
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(MINE.result, producer.engine, one, timeout=PATIENCE) for one in ids[:2]]
        until(lambda: jobs.database.value(f"select count(*) from {SCHEMA}.fq_result_wait") == 2, "both wait")
        MINE.complete(consumer.engine, deliveries[0], result="done")
        MINE.bury(consumer.engine, deliveries[1], reason="no")
        assert waiting[0].result(PATIENCE.total_seconds()) == "done"
        assert isinstance(waiting[1].exception(PATIENCE.total_seconds()), MessageFailed)
    MINE.cancel(producer.engine, ids[2])
    with pytest.raises(ResultCancelled):
        MINE.result(producer.engine, ids[2])
    refused(lambda: MINE.result(consumer.engine, ids[0]))
    producer.engine.dispose()


def test_results_of_a_channel(jobs: Installation) -> None:
    """A producer of one channel reads the results of that channel alone, whatever has become of the others."""
    MINE.configure(jobs.owner, result_retention=HOUR)
    actor = jobs.role("bound", "producer", queues=["mine"], channels=["a"])
    own = MINE.enqueue(actor.engine, channel="a", payload=1).message_id or 0
    theirs = [MINE.enqueue(jobs.owner, channel="b", payload=each).message_id or 0 for each in range(3)]
    with pytest.raises(ResultNotReady):
        MINE.result(actor.engine, own, timeout=timedelta(milliseconds=1))
    deliveries = {one.message_id: one for one in MINE.dequeue(jobs.owner, limit=4)}
    MINE.complete(jobs.owner, deliveries[own], result=7)
    MINE.complete(jobs.owner, deliveries[theirs[0]], result="secret")
    MINE.bury(jobs.owner, deliveries[theirs[1]], reason="secret")
    assert MINE.result(actor.engine, own) == 7
    for message_id in theirs:
        with pytest.raises(NotGranted, match="channel 'b'"):
            MINE.result(actor.engine, message_id)
    with pytest.raises(NotGranted, match="for queue 'other'"):
        Queue("other", schema=SCHEMA).result(actor.engine, own + 1000)
    actor.engine.dispose()


def test_requests_to_stop(jobs: Installation) -> None:
    """An operator asks, and a worker with the grant of a consumer alone stops; no other role may ask."""
    served = Queue("mine", schema=SCHEMA)
    served.handler()(print)
    operator, consumer = jobs.role("operator", "operator"), jobs.role("consumer", "consumer")
    others = [jobs.role(kind, kind).engine for kind in ("producer", "monitor")]
    with retimed(Worker(consumer.engine, served, name="w1"), stop_requests_every=0.02) as worker:
        for engine in (consumer.engine, *others):
            refused(partial(MINE.admin.stop_worker, engine, "w1"))
        assert worker.health().ready
        MINE.admin.stop_worker(operator.engine, "w1")
        until(lambda: not worker.health().ready, "it stops")
    found = jobs.database.value(f"select requested_by from {SCHEMA}.fq_stop_request")
    assert found == operator.name


def test_requests_within_bounds(jobs: Installation) -> None:
    """An operator of one queue stops the workers of no other queue; who monitors or operates sees which workers were
    asked to stop, within the bounds of the grant.
    """
    bound = jobs.role("bound", "operator", queues=["mine"])
    MINE.admin.stop_worker(bound.engine, "w1")
    with pytest.raises(NotGranted, match="queue 'other'"):
        Queue("other", schema=SCHEMA).admin.stop_worker(bound.engine, "w1")
    lease = "insert into %s.fq_lease (id, queue, consumer, expires_at) values (1, 'mine', 'w1', 9000000000000000)"
    jobs.database.execute(lease % SCHEMA)
    asked = f"select consumer from {SCHEMA}.fq_consumers(:queue) where stop_requested_by is not null"
    for actor in (jobs.role("monitor", "monitor"), bound):
        with actor.engine.connect() as connection:
            assert connection.scalars(text(asked), {"queue": "mine"}).all() == ["w1"]
    for actor in (jobs.role("producer", "producer"), jobs.role("consumer", "consumer"), bound):
        with actor.engine.connect() as connection, pytest.raises(DBAPIError):
            connection.execute(text(asked), {"queue": "other"})
