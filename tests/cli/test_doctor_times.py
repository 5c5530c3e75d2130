"""Findings of doctor after the server's clock was ahead for a while."""

from datetime import timedelta

from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from tests.cli.conftest import Cli, only
from tests.cli.messages import QUEUE, Findings, enqueue, lease, levels
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

_DAY = timedelta(days=1)


def _served(engine: Engine) -> list[tuple[str, int]]:
    deliveries = lease(engine)
    QUEUE.complete(engine, deliveries)
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
