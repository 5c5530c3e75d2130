"""Drains of queues with schedules: what is due at the start is run and handled, and what becomes due later is left."""

import threading
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from sqlalchemy_fairqueue.database.schedules import due_schedules, fail_schedule
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.schedules.test_processes import due
from tests.worker.helpers import LONG_LEASE, auntil, is_empty, retimed

pytestmark = pytest.mark.installed

SECOND = timedelta(seconds=1)
OFTEN = {"schedules_every": 0.001, "groups_every": 0.001}


def ran(database: Database) -> int:
    """How many slots were run."""
    return int(database.value("select count(*) from fq_schedule_slot"))


def drained(worker: Worker) -> bool:
    """Run it until it is drained. False: it did not end, and was stopped."""
    running = threading.Thread(target=lambda: worker.run(drain=True), daemon=True)
    running.start()
    running.join(PATIENCE.total_seconds())
    ended = not running.is_alive()
    worker.stop(timedelta())
    return ended


async def test_due_slots_are_run_and_handled(async_engine: AsyncEngine, database: Database, clock: Clock) -> None:
    """Each time a worker drains: no slot that was due is left, and no message that came of one."""
    queue, handled = Queue("documents"), []

    @queue.periodic(every=SECOND, catch_up="all", channel="tick")
    async def tick(delivery: Delivery) -> None:
        handled.append(delivery.headers)

    worker = AsyncWorker(async_engine, queue)
    await worker.run(drain=True)
    for _ in range(2):
        before = len(handled)
        clock.advance(7 * SECOND)
        await worker.run(drain=True)
        assert len(handled) - before >= 7
        assert (len(handled), is_empty(database)) == (ran(database), True)
    async with retimed(worker, **OFTEN):
        clock.advance(SECOND)
        await auntil(lambda: len(handled) > before + 7, "a worker that does not drain runs them all the time")


def test_slots_that_become_due_meanwhile_are_left(engine: Engine, database: Database, clock: Clock) -> None:
    """A schedule that is due again whenever its message is handled does not keep the worker."""
    queue, handled = Queue("documents"), []

    @queue.periodic(every=timedelta(hours=1), catch_up="all", channel="tick")
    def tick(delivery: Delivery) -> None:
        handled.append(datetime.fromisoformat((delivery.headers or {})["scheduled_for"]))
        clock.advance(timedelta(hours=1))

    Worker(engine, queue).run(drain=True)
    clock.advance(timedelta(hours=3))
    assert drained(retimed(Worker(engine, queue, concurrency=1, lease=timedelta(days=7)), **OFTEN))
    assert len(handled) == len(set(handled)) == 3
    assert (is_empty(database), due(database)) == (True, 1)


def test_many_slots_in_parts_end_at_the_start(engine: Engine, database: Database, clock: Clock) -> None:
    """Parts that take longer than the interval do not follow the clock: each transaction puts it forward."""
    queue = Queue("documents")
    queue.handler("tick")(lambda _: None)
    queue.schedules.set(engine, "tick", channel="a", kind="tick", every=SECOND, catch_up="all")
    database.execute(
        "create function public.late() returns trigger language plpgsql as $$ begin"
        " perform setval('public.test_clock', last_value + 20000000) from public.test_clock; return null; end $$"
    )
    database.execute(
        "create trigger late after insert on fq_schedule_slot for each statement execute function public.late()"
    )
    clock.advance(30 * SECOND)
    assert drained(retimed(Worker(engine, queue, lease=LONG_LEASE), slots_at_once=10, **OFTEN))
    assert 30 <= ran(database) < 40
    assert is_empty(database)


def test_a_database_that_is_away_for_a_moment(
    engine: Engine, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slots are run when it is back; a refusal that will not pass ends the wait for them."""
    queue, handled = Queue("documents"), []
    queue.handler("tick")(lambda delivery: handled.append(delivery.message_id))
    queue.schedules.set(engine, "tick", channel="a", kind="tick", every=timedelta(hours=1))
    raised: Any = repeat(OperationalError("", {}, OSError("away")), 2)

    def find(*arguments: Any, **words: Any) -> object:
        if (error := next(raised, None)) is not None:
            raise error
        return due_schedules(*arguments, **words)

    monkeypatch.setattr("sqlalchemy_fairqueue.database.schedules.due_schedules", find)
    clock.advance(timedelta(hours=1))
    Worker(engine, queue).run(drain=True)
    assert (len(handled), ran(database)) == (1, 1)
    raised = repeat(LookupError("it never works"))
    clock.advance(timedelta(hours=1))
    assert drained(Worker(engine, queue))
    assert len(handled) == 1


def test_a_schedule_that_cannot_be_run_is_locked(
    engine: Engine, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker tries it once and drains: it does not wait for the transaction that mends the schedule."""
    queue, handled = Queue("documents"), []
    queue.handler("tick")(lambda delivery: handled.append(delivery.channel))
    for channel in ("bad", "good"):
        queue.schedules.set(engine, "tick", channel=channel, kind="tick", cron="0 * * * *")
    Worker(engine, queue).run(drain=True)
    database.execute("update fq_schedule set timezone = 'Europe/Atlantis' where channel = 'bad'")
    clock.advance(timedelta(hours=1))
    noted: list[bool] = []
    note = fail_schedule

    def spy(*arguments: Any, **words: Any) -> bool:
        noted.append(note(*arguments, **words))
        return noted[-1]

    monkeypatch.setattr("sqlalchemy_fairqueue.database.schedules.fail_schedule", spy)
    with engine.begin() as business:
        queue.schedules.set(business, "tick", channel="bad", kind="tick", cron="0 * * * *")
        assert drained(Worker(engine, queue))
        # Once, and once more after the other one was run.
        assert (noted, handled) == ([False, False], ["good"])
        business.rollback()
    noted.clear()
    assert drained(Worker(engine, queue))
    assert (noted, due(database)) == ([True], 0)
