"""Findings and repairs of doctor after the server's clock was ahead for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from tests.cli.conftest import Cli, only
from tests.cli.messages import QUEUE, Findings, enqueue, enqueue_group, lease, levels
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_SLOWLY = Rate(2, per=_HOUR, burst=2)
_OTHER = Queue("mails")


def _served(engine: Engine, queue: Queue = QUEUE) -> list[tuple[str, int]]:
    deliveries = lease(engine, 10, queue)
    queue.complete(engine, deliveries)
    return [(delivery.channel, delivery.message_id) for delivery in deliveries]


def test_what_may_lie_ahead(findings: Findings, engine: Engine) -> None:
    """Messages for later, long leases and slow rates are no sign of a wrong clock."""
    slow = ChannelPolicy(rate=Rate(1, per=timedelta(hours=1), burst=2))
    QUEUE.configure_channel(engine, "slow", slow)
    enqueue(engine, "a", "slow", "slow", "slow")
    enqueue(engine, "later", delay=_DAY)
    QUEUE.dequeue(engine, limit=10, lease=30 * _DAY)

    assert levels(findings("times")) == ["ok"]


def test_a_clock_that_was_ahead(cli: Cli, findings: Findings, database: Database, engine: Engine, clock: Clock) -> None:
    """What was served or enqueued while the clock was ahead is found, and brought back: pauses and rates stay."""
    rated = ChannelPolicy(rate=Rate(1, per=timedelta(hours=1)))
    QUEUE.configure_channel(engine, "rated", rated)
    enqueue(engine, "served", "rated", "paused")
    clock.advance(_DAY)
    assert len(_served(engine)) == 3
    enqueue(engine, "held")
    held = lease(engine)
    [meanwhile] = enqueue(engine, "served")
    [later] = enqueue(engine, "served", delay=_DAY)
    clock.advance(-_DAY)
    QUEUE.pause(engine, "paused")
    after = enqueue(engine, "served", "rated", "rated", "paused")
    # The order has no times in it: what is due is served.
    assert _served(engine) == [("served", after[0])]

    [found] = findings("times")

    assert found["level"] == "problem"
    assert (found["values"]["channels"], found["values"]["messages"]) == (4, 1)
    assert found["values"]["ahead_seconds"] > 86_000
    assert levels(findings("times", "--queue", "elsewhere")) == ["ok"]
    assert "fairqueue doctor --repair" in found["remedy"]
    with only("times"):
        asked = cli("doctor", "--repair", answer="no\n")
    assert (asked.status, "Is no worker running" in asked.err) == (1, True)
    assert levels(findings("times")) == ["problem"]
    repaired = cli("doctor", "--repair", "--yes", "--json")
    assert (repaired.status, repaired.document["findings"]) == (0, [])
    assert [one["values"]["queue"] for one in repaired.document["repaired"]] == ["documents"]
    with only("times"):
        assert cli("doctor", "--repair").out == "nothing is to be repaired\n"
    assert levels(findings("times")) == ["ok"]
    assert set(_served(engine)) == {("held", held[0].message_id), ("served", meanwhile)}
    clock.advance(timedelta(hours=1, minutes=1))
    assert _served(engine) == [("rated", after[1])]
    assert _served(engine) == []
    QUEUE.resume(engine, "paused")
    assert _served(engine) == [("paused", after[3])]
    clock.advance(2 * _DAY)
    assert set(_served(engine)) == {("served", later), ("rated", after[2])}
    assert database.value("select count(*) from fq_message") == 0


def test_a_clock_that_was_ahead_by_seconds(findings: Findings, engine: Engine, clock: Clock) -> None:
    """Seconds are no finding, for they are waited out."""
    enqueue(engine, "a")
    clock.advance(timedelta(seconds=30))
    _served(engine)
    clock.advance(timedelta(seconds=-30))
    assert levels(findings("times")) == ["ok"]


@contextmanager
def _ahead(clock: Clock) -> Iterator[None]:
    """Set the clock ahead by a day for a block."""
    clock.advance(_DAY)
    yield
    clock.advance(-_DAY)


def _repaired(findings: Findings, database: Database, noun: str, queue: str = QUEUE.name) -> None:
    """Doctor has one finding of a queue, with one noun in it; its remedy takes it away."""
    [found] = (one for one in findings("times") if one["values"].get("queue") == queue)
    assert found["level"] == "problem"
    assert found["values"][f"{noun}s"] == 1
    assert f"1 {noun}" in found["message"]
    assert found["values"]["ahead_seconds"] > 70_000
    for statement in found["repair"]:
        database.execute(statement)
    assert levels(findings("times")) == ["ok"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_rate(findings: Findings, database: Database, engine: Engine, clock: Clock, *, shared: bool) -> None:
    """A queue whose rate, or that of a shared limit, was used meanwhile, goes on at the rate: never faster."""
    if shared:
        QUEUE.limits.configure(engine, "api", rate=_SLOWLY)
        QUEUE.configure(engine, limits=["api"])
    else:
        QUEUE.configure(engine, rate=_SLOWLY)
    enqueue(engine, *"abcdefgh")
    with _ahead(clock):
        assert len(_served(engine)) == 2
    enqueue(engine, *"stuvwxyz")
    clock.advance(2 * _HOUR)
    assert len(_served(engine)) == 0

    _repaired(findings, database, "limit")

    assert len(_served(engine)) == 0
    clock.advance(_HOUR / 2 + timedelta(minutes=1))
    assert len(_served(engine)) == 1
    clock.advance(_HOUR)
    assert len(_served(engine)) == 2


def test_a_queue_that_waited_for_a_shared_limit(
    findings: Findings, database: Database, engine: Engine, clock: Clock
) -> None:
    """No other queue keeps a part of a shared limit free for one that waited meanwhile, and is left since."""
    QUEUE.limits.configure(engine, "api", max_concurrency=1)
    for queue in (QUEUE, _OTHER):
        queue.configure(engine, limits=["api"])
        enqueue(engine, *"abcdefgh", queue=queue)
    with _ahead(clock):
        held = _OTHER.dequeue(engine, limit=1)
        assert len(_served(engine)) == 0
    _OTHER.complete(engine, held)
    while _served(engine, _OTHER):
        pass
    assert database.value("select count(*) from fq_message m join fq_channel c on c.id = channel_id") > 8

    _repaired(findings, database, "limit", _OTHER.name)

    assert [len(_served(engine, _OTHER)) for _ in range(3)] == [1, 1, 1]


def test_a_key(findings: Findings, database: Database, engine: Engine, clock: Clock) -> None:
    """A key with a period that was taken meanwhile is free when its period is over, counted from the repair."""
    with _ahead(clock):
        QUEUE.enqueue(engine, channel="a", payload=1, key="k", unique_for=_HOUR)
        assert len(_served(engine)) == 1
    clock.advance(2 * _HOUR)
    QUEUE.enqueue(engine, channel="a", payload=1, key="k", unique_for=_HOUR)
    assert len(_served(engine)) == 0

    _repaired(findings, database, "key")

    QUEUE.enqueue(engine, channel="a", payload=1, key="k", unique_for=_HOUR)
    assert len(_served(engine)) == 0
    clock.advance(_HOUR + timedelta(minutes=1))
    QUEUE.enqueue(engine, channel="a", payload=1, key="k", unique_for=_HOUR)
    assert len(_served(engine)) == 1


def test_a_group(findings: Findings, database: Database, engine: Engine, clock: Clock) -> None:
    """A group that ended meanwhile is finished."""
    enqueue_group(engine, "a", then="after")
    with _ahead(clock):
        assert len(_served(engine)) == 1
        while database.value("select due_at is null from fq_group"):
            database.execute("select fq_fold_groups(1, 1, false)")
    database.execute("select fq_fold_groups(100, 100, false)")
    assert len(_served(engine)) == 0

    _repaired(findings, database, "group")

    database.execute("select fq_fold_groups(100, 100, false)")
    assert len(_served(engine)) == 1


def test_a_schedule(findings: Findings, database: Database, engine: Engine, clock: Clock) -> None:
    """A schedule runs its slots again from now on, but for one that was run meanwhile."""
    QUEUE.schedules.set(engine, "hourly", channel="a", every=_HOUR)
    anchor, hour = database.value("select anchor_at from fq_schedule"), _HOUR // timedelta(microseconds=1)

    def run(slot: int) -> int:
        """Run a slot as a worker that has found the schedule due; how many messages come of it."""
        found = database.rows(
            "select id, revision, done_until from fq_due_schedules("
            " array['documents'], array[]::text[], array[]::text[], array[]::text[], 0, 1)"
        )
        rows = [
            database.rows(
                "select message_id from fq_run_slots(:id, :revision, :done, array[:slot], :slot, :next, false)",
                id=one.id, revision=one.revision, done=one.done_until, slot=anchor + slot * hour,
                next=anchor + (slot + 1) * hour,
            )
            for one in found if one.done_until < anchor + slot * hour
        ]  # fmt: skip
        return sum(row.message_id is not None for one in rows for row in one)

    with _ahead(clock):
        assert run(24) == 1
    clock.advance(_HOUR + timedelta(minutes=1))
    assert run(1) == 0

    _repaired(findings, database, "schedule")

    clock.advance(_HOUR)
    assert run(2) == 1
    clock.advance(22 * _HOUR)
    assert run(24) == 0
    clock.advance(_HOUR)
    assert run(25) == 1


def test_a_plan(findings: Findings, database: Database) -> None:
    """A plan that was about to be spread to its channels meanwhile is spread."""
    database.execute(
        "insert into fq_plan (queue, name, policy, revision, spread_after, spread_at)"
        " values ('documents', 'pro', '{}', 1, 0, fq_now() + 86400000000)"
    )
    _repaired(findings, database, "plan")
    database.execute("select fq_spread_plans('documents', 10)")
    assert database.value("select spread_after is null from fq_plan")
