"""The contention of one channel, which is read up to a bound, beside that of the whole queue."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.database import stats
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.configuration import read_limits
from sqlalchemy_fairqueue.database.stats import read_channel_stats, read_competition, read_contention, read_stats
from sqlalchemy_fairqueue.values.messages import FairBy
from sqlalchemy_fairqueue.values.waits import with_waits
from tests.cli.messages import QUEUE, enqueue, lease

TARGET = Target(None, QUEUE.name)
CHANNELS = ("a", "b", "c", "d", "full", "late", "paused", "new", "later", "held")
QUEUE_FIELDS = ("queue", "paused_at", "current_concurrency", "max_concurrency", "rate_allows_at")
CHANNEL_FIELDS = (
    "channel", "leased", "weight", "paused_at", "current_concurrency", "max_concurrency", "rate", "rate_allows_at",
    "oldest_ready_at", "last_dequeue_at", "held", "behind",
)  # fmt: skip


def _crowd(engine: Engine) -> None:
    """Channels of different weights: some hold messages, some are held back, of two nobody has heard."""
    for weight, channel in enumerate(CHANNELS[:4], 1):
        QUEUE.configure_channel(engine, channel, weight=weight)
    QUEUE.configure_channel(engine, "full", max_concurrency=1, weight=5)
    QUEUE.configure_channel(engine, "late", rate="1/h, burst 1", weight=6)
    QUEUE.configure(engine, max_concurrency=7)
    enqueue(engine, "a", "b", "b", "full", "late", "late")
    enqueue(engine, "held", "held", ordering_key="k")
    QUEUE.complete(engine, next(one for one in lease(engine, 7) if one.channel == "late"))
    enqueue(engine, "a", "b", "c", "d", "full", "late", "paused")
    enqueue(engine, "later", delay=timedelta(hours=1))
    QUEUE.pause(engine, "paused")
    assert lease(engine) != []
    enqueue(engine, "a", "b", "c", "d", "new")


def _whole(connection: Connection, channel: str) -> tuple[Any, ...]:
    """What the statistics of the queue and its whole contention say of a channel."""
    [own] = read_channel_stats(connection, TARGET, [channel], limit=1)
    of_queue, contention = read_stats(connection, TARGET), read_contention(connection, TARGET, limit=100)
    holding = sorted((one for one in contention.channels if one.leased), key=lambda one: (-one.leased, one.channel))
    return (
        {name: getattr(own, name) for name in CHANNEL_FIELDS},
        own.ready + own.scheduled,
        # What costs are served is told by the statistics also where the queue shares by messages.
        None if contention.served_cost is None else own.served_cost,
        [(one.channel, one.leased, one.weight) for one in holding[:4]],
        (contention.leased, contention.rival_weight, contention.served_cost),
        {name: getattr(of_queue, name) for name in QUEUE_FIELDS},
        bool(of_queue.consumers),
    )


def _bounded(connection: Connection, channel: str) -> tuple[Any, ...]:
    capacity, found, [own] = read_competition(connection, TARGET, [channel])
    return (
        {name: getattr(own, name) for name in CHANNEL_FIELDS},
        own.ready + own.scheduled,
        own.served_cost,
        [(one.channel, one.leased, one.weight) for one in found.channels],
        (found.leased, found.rival_weight, found.served_cost),
        {name: getattr(capacity, name) for name in QUEUE_FIELDS},
        bool(capacity.consumers),
    )


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
def test_up_to_the_bound_it_has_the_same_figures(engine: Engine, fair_by: FairBy) -> None:
    """Each channel, whatever holds it back, competes with the same ones, and so has the same reason to wait."""
    QUEUE.configure(engine, fair_by=fair_by, history=fair_by == "cost")
    _crowd(engine)
    with engine.connect() as connection:
        limits = read_limits(connection, None, queue=QUEUE.name)
        now = stats.read_clock(connection, None)
        whole = read_stats(connection, TARGET), read_contention(connection, TARGET, limit=100), limits
        reasons = set()
        for channel in CHANNELS:
            assert (channel, *_bounded(connection, channel)) == (channel, *_whole(connection, channel))
            capacity, found, own = read_competition(connection, TARGET, [channel])
            [bounded] = with_waits(capacity, found, limits, own, now)
            [exact] = with_waits(*whole, read_channel_stats(connection, TARGET, [channel], limit=1), now)
            assert bounded.wait == exact.wait
            reasons.add(bounded.reason)
        assert len(reasons) >= 4


def test_an_idle_queue(engine: Engine) -> None:
    """A queue that nobody configured and that has no consumer says so; a channel that is not there has no figures."""
    enqueue(engine, "a")
    with engine.connect() as connection:
        assert _bounded(connection, "a") == _whole(connection, "a")
        capacity, found, own = read_competition(connection, TARGET, ["none"])
        assert (own, found.rival_weight, found.channels, capacity.consumers) == ([], 1, (), 0)


def test_slots_that_nobody_has_heard_of(engine: Engine) -> None:
    """A full channel whose slot was freed competes once a dequeue has heard of it, if it has messages that are due."""
    names = ("due", "later", "none", "told")
    for weight, channel in enumerate(names):
        QUEUE.configure_channel(engine, channel, max_concurrency=1, weight=10**weight)
    enqueue(engine, "due", "due", "due", "later", "none", "told")
    enqueue(engine, "later", delay=timedelta(hours=1))
    held = lease(engine)
    assert len(held) == len(names)
    assert lease(engine) == []
    enqueue(engine, "told", "other")

    def rival_weights() -> set[int]:
        with engine.connect() as connection:
            both = (read(connection, channel) for channel in (*names, "other") for read in (_bounded, _whole))
            return {found[4][1] for found in both}

    QUEUE.complete(engine, held)
    # Only the channel without a limit.
    assert rival_weights() == {1}
    [_, *_] = QUEUE.dequeue(engine, limit=1)
    assert rival_weights() == {1 + 1_000 + 1}


def test_beyond_the_bound_it_counts_so_many(engine: Engine) -> None:
    """With fewer messages out and channels than there are, the channel has its own figures, and shares of those."""
    enqueue(engine, *"abcdef")
    assert len(lease(engine, 6)) == 6
    enqueue(engine, *"ghijkl")
    assert lease(engine, 1) != []
    with engine.connect() as connection:
        _, found, [own] = read_competition(connection, TARGET, ["l"], scan=2, count=2)
    assert (own.channel, own.leased, found.leased, len(found.channels)) == ("l", 0, 2, 2)
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
        _, found, [own] = read_competition(connection, TARGET, ["a"], scan=2)
    assert [(one.channel, one.leased) for one in found.channels[:2]] == [("whale", 3), ("f", 2)]
    assert (own.leased, found.leased, found.rival_weight) == (1, 10, 3)


def test_several_channels_are_read_at_once(engine: Engine) -> None:
    """Each of several has the figures that it has alone; one that is not there is left out."""
    _crowd(engine)
    with engine.connect() as connection:
        capacity, found, own = read_competition(connection, TARGET, [*CHANNELS, "nobody"], rivals=4)
        assert {one.channel for one in own} == set(CHANNELS)
        for one in own:
            assert read_competition(connection, TARGET, [one.channel]) == (capacity, found, [one])
