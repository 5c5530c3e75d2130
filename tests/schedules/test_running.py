"""Schedules run by workers: once, by the rule of catch_up, and beside schedules that cannot be run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Context, Delivery, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.times import instant
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.duties import Housekeeping, Schedules
from sqlalchemy_fairqueue.worker.leases import ServedQueue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.helpers import LONG_LEASE, retimed, until

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.schedules import CatchUp

pytestmark = pytest.mark.installed

OFTEN = {"schedules_every": 0.05}
HOUR = timedelta(hours=1)
_RAN = "select s.name from fq_schedule_slot t join fq_schedule s on s.id = t.schedule_id"


def queue_that_waits() -> Queue:
    """A queue whose messages stay: its handler is for another kind."""
    made = Queue("documents", check_kinds=False)
    made.handler("none")(print)
    return made


@pytest.fixture
def queue() -> Queue:
    """Such a queue."""
    return queue_that_waits()


def hourly(engine: Engine, *names: str, channel: str = "a") -> None:
    """Make schedules that run every hour."""
    for name in names:
        Queue("documents").schedules.set(engine, name, channel=channel, every=HOUR)


@contextmanager
def working(engine: Engine, queue: Queue, **timings: float) -> Iterator[Worker]:
    """A worker that polls schedules all the time, and does not take messages."""
    queue.pause(engine)
    with retimed(Worker(engine, queue, lease=LONG_LEASE), **{**OFTEN, **timings}) as worker:
        yield worker


def slots(database: Database) -> list[datetime]:
    """The slots that were run."""
    return [instant(row.slot_at) for row in database.rows("select slot_at from fq_schedule_slot order by slot_at")]


def planned(database: Database) -> bool:
    """Whether every schedule has been planned for the time that is now."""
    waiting = "select count(*) from fq_schedule where due_at <= fq_now() or (next_at is null and paused_at is null)"
    return bool(database.value(waiting) == 0)


def test_slots_run_and_the_first_call_does_not(engine: Engine, queue: Queue, database: Database, clock: Clock) -> None:
    """A new schedule waits for its first slot; the slot's message says which it is, and is delivered once."""
    words: dict[str, Any] = {"cron": "0 3 * * *", "timezone": "Asia/Tokyo", "kind": "report", "payload": [1]}
    queue.schedules.set(engine, "nightly", channel="a", **words)
    with working(engine, queue):
        until(lambda: planned(database), "it is planned")
        [before] = queue.schedules.list(engine)
        assert slots(database) == []
        assert before.next_run_at is not None
        clock.advance(before.next_run_at - clock.now())
        until(lambda: slots(database) == [before.next_run_at], "the slot is run")
        until(lambda: planned(database), "the next one is planned")
    [after] = queue.schedules.list(engine)
    queue.resume(engine)
    [delivery] = queue.dequeue(engine, limit=10)
    assert (delivery.channel, delivery.kind, delivery.payload) == ("a", "report", [1])
    assert delivery.headers is not None
    assert delivery.headers["schedule"] == "nightly"
    assert datetime.fromisoformat(delivery.headers["scheduled_for"]) == before.next_run_at
    assert (after.last_slot_at, after.last_message_id) == (before.next_run_at, delivery.message_id)
    assert after.next_run_at == before.next_run_at + timedelta(days=1)


def test_an_outage(engine: Engine, queue: Queue, database: Database, clock: Clock) -> None:
    """After hours without a worker late slots run by the rule that was asked for."""
    rules: dict[CatchUp, list[int]] = {"skip": [], "last": [5], "all": [1, 2, 3, 4, 5]}
    for rule in rules:
        queue.schedules.set(engine, "hourly", channel=rule, every=HOUR, catch_up=rule)
    before = {one.channel: one.created_at for one in queue.schedules.list(engine)}
    clock.advance(5 * HOUR + timedelta(minutes=30))
    assert {one.state for one in queue.schedules.list(engine)} == {"overdue"}
    with working(engine, queue):
        until(lambda: planned(database), "they are planned")
    late = [before[rule] + number * HOUR for rule, numbers in rules.items() for number in numbers]
    assert sorted(slots(database)) == sorted(late)
    assert all(one.next_run_at == before[one.channel] + 6 * HOUR for one in queue.schedules.list(engine))


def test_many_slots_hold_up_no_other_schedule(engine: Engine, queue: Queue, database: Database, clock: Clock) -> None:
    """While one schedule makes up for many slots, others run after each part: they would be late, and skipped."""
    queue.schedules.set(engine, "often", channel="many", every=timedelta(seconds=10), catch_up="all")
    hourly(engine, *(f"hourly {number}" for number in range(20)), channel="others")
    clock.advance(HOUR)
    with working(engine, queue, slots_at_once=10):
        until(lambda: len(slots(database)) >= 380, "all are run")
    last = "select max(m.id) filter (where c.name = 'others') - min(m.id) from fq_message m"
    assert database.value(f"{last} join fq_channel c on c.id = m.channel_id") < 20 + 10


def test_jitter(engine: Engine, queue: Queue, database: Database, clock: Clock) -> None:
    """Messages of many schedules with the same slot are spread over the time that was asked for."""
    for number in range(20):
        queue.schedules.set(engine, f"s{number}", channel="a", cron="0 * * * *", jitter=timedelta(minutes=10))
    with working(engine, queue):
        until(lambda: planned(database), "all are planned")
        [first, *_] = queue.schedules.list(engine)
        assert first.next_run_at is not None
        clock.advance(first.next_run_at - clock.now())
        until(lambda: database.value("select count(*) from fq_message") == 20, "all are run")
    rows = database.rows(
        "select m.dequeue_at - s.slot_at as later from fq_schedule_slot s join fq_message m on m.id = s.message_id"
    )
    assert all(0 <= row.later <= 600 * 1_000_000 for row in rows)
    assert len({row.later for row in rows}) > 10


def test_bad_ones_cost_themselves(
    engine: Engine, queue: Queue, database: Database, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A zone that vanished, a broken expression and a full channel are told, and the others run; a repair is seen."""
    for name, channel in (("zone", "a"), ("cron", "a"), ("full", "full"), ("good", "a")):
        queue.schedules.set(engine, name, channel=channel, cron="0 * * * *")
    queue.configure_channel(engine, "full", ChannelPolicy(max_backlog=1))
    queue.schedules.run(engine, "full", channel="full")
    with working(engine, queue):
        until(lambda: planned(database), "all are planned")
        database.execute("update fq_schedule set timezone = 'Europe/Atlantis' where name = 'zone'")
        database.execute("update fq_schedule set cron = '0 25 * * *' where name = 'cron'")
        clock.advance(HOUR)
        until(lambda: sum(one.state == "failing" for one in queue.schedules.list(engine)) == 3, "three are told")
        until(lambda: len(slots(database)) == 1, "the good one is run")
    told = {one.name: one.problem for one in queue.schedules.list(engine)}
    assert told["good"] is None
    for name, said in (("zone", "timezone is 'Europe/Atlantis'"), ("cron", "bad hour"), ("full", "is full")):
        assert said in str(told[name])
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("cannot run schedule" in line for line in logged) == 3
    queue.schedules.set(engine, "zone", channel="a", cron="0 * * * *")
    repaired = {one.name: one for one in queue.schedules.list(engine)}["zone"]
    assert (repaired.state, repaired.problem) == ("active", None)


def test_more_late_slots_than_its_channel_has_room_for(
    engine: Engine, queue: Queue, database: Database, clock: Clock
) -> None:
    """Late slots are run as far as there is room; the others are told, and run when there is room again."""
    queue.schedules.set(engine, "hourly", channel="a", every=HOUR, catch_up="all")
    queue.configure_channel(engine, "a", ChannelPolicy(max_backlog=2))
    with working(engine, queue):
        until(lambda: planned(database), "it is planned")
        clock.advance(5 * HOUR)
        until(lambda: queue.schedules.list(engine)[0].state == "failing", "it is told that there is no room")
        for done in (2, 4, 5):
            until(partial(lambda done: len(slots(database)) == done, done), "there is room for two")
            queue.purge(engine, "a")
            clock.advance(timedelta(minutes=1))
        until(lambda: queue.schedules.list(engine)[0].state == "active", "all are run")


def test_a_schedule_that_is_locked_waits(engine: Engine, queue: Queue, database: Database, clock: Clock) -> None:
    """While a business transaction changes a schedule others run; its slots run after it, or never if it removed it."""
    hourly(engine, "locked", "free")
    with working(engine, queue), engine.begin() as business:
        queue.schedules.pause(business, "locked", channel="a")
        clock.advance(HOUR)
        until(lambda: len(slots(database)) == 1, "the other one is run")
        business.rollback()
        until(lambda: len(slots(database)) == 2, "it is run")


def test_a_schedule_that_is_locked_is_not_hurried(engine: Engine, queue: Queue, clock: Clock) -> None:
    """After a round, the next look is soon, since a schedule may be due again; after a round in vain it is as usual."""
    hourly(engine, "locked")
    options = Worker(engine, queue)._options
    polling = DedicatedConnection(options)
    rounds = Schedules(polling, [ServedQueue(queue, options, {})], options)
    waits = []
    with engine.begin() as business:
        queue.schedules.pause(business, "locked", channel="a")
        clock.advance(HOUR)
        for _ in range(3):
            waits.append(rounds.poll())
            until(lambda: not rounds.is_under_way, "the round has ended")
        business.rollback()
    polling.close()
    assert [wait is not None and wait < 1 for wait in waits] == [True, False, False]


def test_a_channel_that_is_being_made_holds_up_its_schedules_alone(
    engine: Engine, queue: Queue, database: Database, clock: Clock
) -> None:
    """Also where sessions have no lock_timeout, as behind a transaction pooler: others run, these afterwards."""
    hourly(engine, *"12345678", channel="new")
    hourly(engine, "free")
    queue.pause(engine)
    worker = Worker(engine, queue, lease=LONG_LEASE, listen=False)
    with retimed(worker, **OFTEN), engine.begin() as business:
        queue.enqueue(business, channel="new", payload=1)
        clock.advance(HOUR)
        until(lambda: len(slots(database)) == 1, "the other one is run")
        business.commit()
        until(lambda: len(slots(database)) == 9, "they are run")


def test_removed_and_paused_ones_run_no_more(engine: Engine, queue: Queue, database: Database, clock: Clock) -> None:
    """From the commit on, whatever a worker has planned."""
    hourly(engine, "removed", "paused", "left")
    with working(engine, queue):
        until(lambda: planned(database), "all are planned")
        queue.schedules.remove(engine, "removed", channel="a")
        queue.schedules.pause(engine, "paused", channel="a")
        clock.advance(HOUR)
        until(lambda: planned(database), "the last one is run")
    assert database.rows(_RAN) == [("left",)]


def test_periodic(engine: Engine, database: Database, clock: Clock) -> None:
    """A schedule in code is set when a worker starts, and its function handles the messages; two of one name in a
    channel are a mistake.
    """
    queue, called = Queue("documents"), []

    @queue.periodic(channel="system", every=HOUR, payload=7, ordering_key="house")
    def tidy(delivery: Delivery) -> None:
        called.append((delivery.payload, delivery.ordering_key))

    @queue.periodic("again", channel="system", cron="0 3 * * *", kind="other")
    @queue.periodic("more", channel="system", cron="0 4 * * *", kind="other")
    def others(delivery: Delivery, context: Context) -> None:
        raise AssertionError(delivery, context)

    assert sorted(queue._handlers) == ["other", "tidy"]
    with retimed(Worker(engine, queue, lease=LONG_LEASE), **OFTEN):
        until(lambda: len(queue.schedules.list(engine)) == 3, "they are set")
        until(lambda: planned(database), "they are planned")
        assert called == []
        clock.advance(HOUR)
        until(lambda: called == [(7, "house")], "it is called")
    assert {(one.name, one.in_code) for one in queue.schedules.list(engine)} == {
        (name, True) for name in ("tidy", "again", "more")
    }
    with pytest.raises(InvalidArgument, match="channel 'system' of queue 'documents' has a schedule 'tidy' already"):
        queue.periodic("tidy", channel="system", every=HOUR, kind="b")(print)
    queue.periodic("first", channel="system", every=HOUR, kind="b")(print)
    with pytest.raises(InvalidArgument, match="kind 'b' has this handler already"):
        queue.periodic("second", channel="system", every=HOUR, kind="b", timeout=HOUR)(print)


def test_periodic_after_a_restore(engine: Engine, queue: Queue, database: Database) -> None:
    """A worker whose connections broke sets a schedule of its code that is not there any more, and changes no other."""
    for name in "lost", "changed":
        queue.periodic(name, channel="system", every=HOUR, kind="none")(print)
    with working(engine, queue):
        until(lambda: len(queue.schedules.list(engine)) == 2, "they are set")
        until(lambda: planned(database), "they are planned")
        queue.schedules.remove(engine, "lost", channel="system")
        queue.schedules.set(engine, "changed", channel="system", every=2 * HOUR)
        engine.dispose()
        database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        until(lambda: len(queue.schedules.list(engine)) == 2, "the lost one is set again")
    assert {one.name: one.every for one in queue.schedules.list(engine)} == {"lost": HOUR, "changed": 2 * HOUR}


def test_what_vanished_from_the_code(engine: Engine, database: Database, clock: Clock) -> None:
    """It runs no more; it is shown as overdue, and removed after a week; a worker that has it again goes on before."""
    older = queue_that_waits()
    older.periodic("tidy", channel="system", every=HOUR, kind="none")(print)
    newer = queue_that_waits()
    hourly(engine, "call")
    with working(engine, older):
        until(lambda: len(older.schedules.list(engine)) == 2, "it is set")
        until(lambda: planned(database), "it is planned")
    clock.advance(HOUR)
    with working(engine, newer):
        until(lambda: len(slots(database)) == 1, "the one of the call is run")
        until(lambda: database.value("select count(*) from fq_schedule where due_at > fq_now()") == 1, "planned")
    assert database.rows(_RAN) == [("call",)]
    clock.advance(timedelta(days=6))
    keep_house(engine, newer)
    assert {one.name: one.state for one in newer.schedules.list(engine)} == {"call": "overdue", "tidy": "overdue"}
    with working(engine, older):
        until(lambda: planned(database), "it goes on")
    clock.advance(timedelta(days=9))
    keep_house(engine, newer)
    assert [one.name for one in newer.schedules.list(engine)] == ["call"]


def test_old_slots_are_pruned(engine: Engine, queue: Queue, database: Database, clock: Clock) -> None:
    """The record of a slot is kept for a week; nothing runs again without it."""
    hourly(engine, "hourly")
    with working(engine, queue):
        clock.advance(HOUR)
        until(lambda: len(slots(database)) == 1, "it is run")
        keep_house(engine, queue)
        assert len(slots(database)) == 1
        queue.schedules.pause(engine, "hourly", channel="a")
    clock.advance(timedelta(days=8))
    keep_house(engine, queue)
    assert slots(database) == []


def keep_house(engine: Engine, queue: Queue) -> None:
    """One round of housekeeping."""
    Housekeeping(Worker(engine, queue)._options).run()


def test_a_worker_without_housekeeping_leaves_them(engine: Engine, database: Database, clock: Clock) -> None:
    """Its share is done by others."""
    queue = Queue("documents")
    done = []
    queue.handler()(lambda delivery: done.append(delivery.payload))
    hourly(engine, "hourly")
    clock.advance(HOUR)
    queue.enqueue(engine, channel="a", payload=1)
    with retimed(Worker(engine, queue, lease=LONG_LEASE, housekeeping=False), **OFTEN):
        until(lambda: done == [1], "it works")
    assert slots(database) == []
