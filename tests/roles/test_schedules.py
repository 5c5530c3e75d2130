"""Schedules by roles: who makes, changes, runs and lists them, and whose worker runs their slots."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import ProgrammingError

from sqlalchemy_fairqueue import Queue, Worker
from sqlalchemy_fairqueue.errors import NotGranted
from tests.fixtures.clock import Clock
from tests.roles.conftest import SCHEMA, Installation
from tests.worker.helpers import LONG_LEASE, retimed, until

pytestmark = pytest.mark.installed

HOUR = timedelta(hours=1)


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


def test_kinds_of_work(jobs: Installation) -> None:
    """A producer makes schedules, an operator looks after them, a monitor lists them; a consumer does none of it."""
    web, ops, monitor, worker = (
        jobs.role(name, kind).engine
        for name, kind in (("web", "producer"), ("ops", "operator"), ("mon", "monitor"), ("worker", "consumer"))
    )
    refused(lambda: schedule(ops), lambda: schedule(monitor), lambda: schedule(worker))
    schedule(web)
    for engine in (web, ops, monitor):
        assert [one.name for one in queue().schedules.list(engine)] == ["hourly"]
    refused(
        lambda: queue().schedules.list(worker),
        lambda: queue().schedules.pause(monitor, "hourly", channel="customer-1"),
        lambda: queue().schedules.run(worker, "hourly", channel="customer-1"),
    )
    for engine in (web, ops):
        queue().schedules.pause(engine, "hourly", channel="customer-1")
        queue().schedules.resume(engine, "hourly", channel="customer-1")
        assert queue().schedules.run(engine, "hourly", channel="customer-1")
    queue().schedules.remove(ops, "hourly", channel="customer-1")
    assert queue().schedules.list(web) == []


def test_a_producer_bound_to_a_channel(jobs: Installation) -> None:
    """It makes, changes and sees the schedules of its channel, and none of another."""
    own = jobs.role("own")
    jobs.grant(own.name, "producer", queues=["documents"], channels=["customer-1"])
    schedule(own.engine)
    schedule(jobs.owner, "customer-2")
    assert [one.channel for one in queue().schedules.list(own.engine, channel="customer-1")] == ["customer-1"]
    for call in (
        lambda: schedule(own.engine, "customer-2"),
        lambda: queue().schedules.remove(own.engine, "hourly", channel="customer-2"),
        lambda: queue().schedules.pause(own.engine, "hourly", channel="customer-2"),
        lambda: queue().schedules.run(own.engine, "hourly", channel="customer-2"),
        lambda: queue().schedules.list(own.engine, channel="customer-2"),
        lambda: queue().schedules.list(own.engine),
    ):
        with pytest.raises(NotGranted):
            call()
    assert len(queue().schedules.list(jobs.owner)) == 2


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
