"""The contention of one channel, which is read up to a bound, beside that of the whole queue."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import Target
from sqlalchemy_fairqueue.values import ChannelDemand, FairBy, wait_of, wait_of_ready
from tests.cli.messages import QUEUE, enqueue, lease
from tests.fixtures.database import Database

TARGET = Target(None, QUEUE.name)
CHANNELS = ("a", "b", "c", "d", "full", "late", "paused", "new")
QUEUE_FIELDS = ("queue", "paused_at", "current_concurrency", "max_concurrency", "rate_allows_at")


def _crowd(engine: Engine) -> None:
    """Channels of different weights: some hold messages, some are held back, of two nobody has heard."""
    for weight, channel in enumerate(CHANNELS[:4], 1):
        QUEUE.configure_channel(engine, channel, weight=weight)
    QUEUE.configure_channel(engine, "full", max_concurrency=1, weight=5)
    QUEUE.configure_channel(engine, "late", rate="1/h, burst 1", weight=6)
    QUEUE.configure(engine, max_concurrency=6)
    enqueue(engine, "a", "b", "b", "full", "late", "late")
    QUEUE.complete(engine, next(one for one in lease(engine, 6) if one.channel == "late"))
    enqueue(engine, "a", "b", "c", "d", "full", "late", "paused")
    enqueue(engine, "later", delay=timedelta(hours=1))
    QUEUE.pause(engine, "paused")
    assert lease(engine) != []
    enqueue(engine, "a", "b", "c", "d", "new")


def _whole(connection: Connection, channel: str) -> tuple[Any, ...]:
    """What the statistics of the queue and its whole contention say of a channel."""
    [stats] = database.channel_stats(connection, TARGET, [channel], limit=1)
    of_queue, contention = database.stats(connection, TARGET), database.contention(connection, TARGET, limit=100)
    holding = sorted((one for one in contention.channels if one.leased), key=lambda one: (-one.leased, one.channel))
    names = (
        "leased", "weight", "paused_at", "current_concurrency", "max_concurrency", "rate", "rate_allows_at",
        "oldest_ready_at", "last_dequeue_at",
    )  # fmt: skip
    return (
        ChannelDemand(
            channel=channel,
            # What costs are served is told by the statistics also where the queue shares by messages.
            served_cost=None if contention.served_cost is None else stats.served_cost,
            ready=stats.ready + stats.scheduled,
            scheduled=0,
            **{name: getattr(stats, name) for name in names},
        ),
        [(one.channel, one.leased, one.weight) for one in holding[:4]],
        (contention.leased, contention.rival_weight, contention.served_cost),
        tuple(getattr(of_queue, name) for name in QUEUE_FIELDS),
        bool(of_queue.consumers),
    )


def _bounded(connection: Connection, channel: str) -> tuple[Any, ...]:
    found = database.contention_of(connection, TARGET, [channel], limit=4)
    [demand] = [one for one in found.channels if one.channel == channel]
    holding = sorted((one for one in found.channels if one.leased), key=lambda one: (-one.leased, one.channel))
    return (
        demand,
        [(one.channel, one.leased, one.weight) for one in holding[:4]],
        (found.leased, found.rival_weight, found.served_cost),
        tuple(getattr(found, name) for name in QUEUE_FIELDS),
        found.consumers,
    )


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
def test_up_to_the_bound_it_has_the_same_figures(engine: Engine, fair_by: FairBy) -> None:
    """Each channel, whatever holds it back, competes with the same ones, and so has the same reason to wait."""
    QUEUE.configure(engine, fair_by=fair_by, history=fair_by == "cost")
    _crowd(engine)
    with engine.connect() as connection:
        limits = database.limits(connection, None, queue=QUEUE.name)
        now = database.now(connection, None)
        whole = database.stats(connection, TARGET), database.contention(connection, TARGET, limit=100), limits
        reasons = set()
        for channel in CHANNELS:
            assert (channel, *_bounded(connection, channel)) == (channel, *_whole(connection, channel))
            [stats] = database.channel_stats(connection, TARGET, [channel], limit=1)
            found = database.contention_of(connection, TARGET, [channel], limit=4)
            [demand] = [one for one in found.channels if one.channel == channel]
            wait = wait_of_ready(found, found, limits, demand, now)
            assert wait == wait_of(*whole, stats, now)
            reasons.add(wait.reason)
        assert len(reasons) >= 4


def test_an_idle_queue(engine: Engine) -> None:
    """A queue that nobody configured and that has no consumer says so; a channel that is not there has no figures."""
    enqueue(engine, "a")
    with engine.connect() as connection:
        assert _bounded(connection, "a") == _whole(connection, "a")
        found = database.contention_of(connection, TARGET, ["none"], limit=4)
        assert (found.rival_weight, found.channels, found.consumers) == (1, (), False)


def test_slots_that_nobody_has_heard_of(engine: Engine) -> None:
    """A full channel whose slot was freed competes if it has messages that are due, heard or unheard, and else not."""
    names = ("due", "later", "none", "told")
    for weight, channel in enumerate(names):
        QUEUE.configure_channel(engine, channel, max_concurrency=1, weight=10**weight)
    enqueue(engine, "due", "due", "later", "none", "told")
    enqueue(engine, "later", delay=timedelta(hours=1))
    held = lease(engine)
    assert len(held) == len(names)
    assert lease(engine) == []
    enqueue(engine, "told", "other")
    QUEUE.complete(engine, held)
    with engine.connect() as connection:
        for channel in (*names, "other"):
            found, whole = _bounded(connection, channel), _whole(connection, channel)
            assert found[2][1] == whole[2][1] == 1 + 1_000 + 1


def test_beyond_the_bound_it_counts_so_many(engine: Engine) -> None:
    """With fewer messages out and channels than there are, the channel has its own figures, and shares of those."""
    enqueue(engine, *"abcdef")
    assert len(lease(engine, 6)) == 6
    enqueue(engine, *"ghijkl")
    assert lease(engine, 1) != []
    with engine.connect() as connection:
        found = database.contention_of(connection, TARGET, ["l"], limit=4, scan=2, count=2)
    assert [(one.channel, one.leased) for one in found.channels if not one.leased] == [("l", 0)]
    assert (found.leased, len(found.channels)) == (2, 3)
    # Two that hold messages, two that are ready, and itself, which may be one of these.
    assert 4 <= found.rival_weight <= 5


def test_who_has_most_is_found_among_all_that_are_counted(engine: Engine) -> None:
    """Weights are read of a part of the channels with messages out, messages are counted of all, the own ones too."""
    enqueue(engine, *"abcdef")
    assert len(lease(engine, 6)) == 6
    enqueue(engine, *["whale"] * 3, "f")
    assert len(lease(engine, 4)) == 4
    enqueue(engine, "a")
    with engine.connect() as connection:
        found = database.contention_of(connection, TARGET, ["a"], limit=2, scan=2)
    assert {one.channel: one.leased for one in found.channels} == {"whale": 3, "f": 2, "a": 1}
    assert (found.leased, found.rival_weight) == (10, 3)


def test_several_channels_are_read_at_once(engine: Engine) -> None:
    """Each of several has the figures that it has alone; one that is not there is left out."""
    _crowd(engine)
    with engine.connect() as connection:
        found = database.contention_of(connection, TARGET, [*CHANNELS, "nobody"], limit=4)
        alone = [_bounded(connection, channel)[0] for channel in CHANNELS]
        assert {one.channel: one for one in found.channels} == {one.channel: one for one in alone}


@pytest.mark.parametrize(
    "arguments",
    ["0, '{c}', 1, 1", "null, '{c}', 1, 1", "1, '{c}', 0, 1", "1, '{c}', null, 1", "1, '{c}', 1, 0", "1, null, 1, 1"],
)
def test_bounds_that_are_none(database: Database, arguments: str) -> None:
    """A limit and a bound below 1 are refused."""
    with pytest.raises(Exception, match="fq_contention has limit"):
        database.rows(f"select * from fq_contention('q', {arguments})")
