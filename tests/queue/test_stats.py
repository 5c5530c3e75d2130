"""Statistics of a queue, as stats and channels return them."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from sqlalchemy_fairqueue.reports import ChannelStats, QueueStats
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect

_COUNTS = (
    *("channels", "ready", "deliverable", "paused", "limited", "held", "scheduled", "leased", "dead", "dropped"),
    *("signals", "consumers"),
)
_NONE: dict[str, Any] = {field.name: 0 if field.name in _COUNTS else None for field in fields(QueueStats)}
NOTHING = QueueStats(**_NONE | {"queue": "documents"})


def test_a_queue_that_nobody_knows(queue: Queue, engine: Engine) -> None:
    """A queue without a message, channel or configuration has nothing of everything."""
    assert queue.stats(engine) == NOTHING
    assert queue.channels(engine) == []
    assert queue.channels(engine, "a") == []


def test_counts(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Ready, scheduled, leased and dead messages are counted, for the queue and for each channel, with true times."""
    before = clock.now()
    with Session(engine) as session, session.begin():
        for channel, delay in (("a", None), ("a", None), ("a", None), ("b", timedelta(hours=1)), ("b", None)):
            queue.enqueue(session, channel=channel, payload=1, delay=delay)
    assert queue.stats(engine).signals == 2
    clock.advance(timedelta(minutes=1))
    _out, dead = (one for one in queue.dequeue(engine, limit=3) if one.channel == "a")
    queue.bury(engine, dead)
    stats = queue.stats(engine)
    assert (stats.channels, stats.ready, stats.scheduled, stats.leased, stats.dead) == (2, 1, 1, 2, 1)
    assert stats.consumers == 1
    assert stats.oldest_ready_at is not None
    assert before <= stats.oldest_ready_at < clock.now() - timedelta(minutes=1)
    a, b = queue.channels(engine)
    assert (a.channel, a.ready, a.scheduled, a.leased, a.dead, a.backlog) == ("a", 1, 0, 1, 1, 1)
    assert (b.channel, b.ready, b.scheduled, b.leased, b.dead, b.backlog) == ("b", 0, 1, 1, 0, 1)
    assert a.oldest_ready_at == stats.oldest_ready_at
    assert a.last_dequeue_at is not None
    assert b.oldest_ready_at is None


def _set(
    whole: dict[str, Any] | None = None, *, paused: Sequence[str | None] = (), **channels: dict[str, Any]
) -> Callable[[Queue, Engine], None]:
    """What pauses channels or the queue, and limits the whole queue and channels."""

    def hold_back(queue: Queue, engine: Engine) -> None:
        for channel in paused:
            queue.pause(engine, channel, new=channel is not None)
        for channel, policy in channels.items():
            queue.configure_channel(engine, channel, **policy)
        if whole:
            queue.configure(engine, **whole)

    return hold_back


def _share_a_limit(queue: Queue, engine: Engine) -> None:
    queue.limits.configure(engine, "ocr", max_concurrency=5)
    other = Queue("other")
    for each in (queue, other):
        each.configure(engine, limits=["ocr"])
    other.enqueue(engine, channel="a", payload=1)
    [_held] = other.dequeue(engine)


@pytest.mark.parametrize(
    ("hold_back", "of_queue", "by_channel"),
    [
        (lambda _queue, _engine: None, (7, 0, 0), [(4, 0, 0), (3, 0, 0)]),
        (_set(paused=["a"]), (3, 4, 0), [(0, 4, 0), (3, 0, 0)]),
        (_set(paused=["a", None]), (0, 7, 0), [(0, 4, 0), (0, 3, 0)]),
        (_set(a={"max_concurrency": 2}, b={"rate": "1/d"}), (3, 0, 4), [(2, 0, 2), (1, 0, 2)]),
        (_set({"max_concurrency": 2}, paused=["a"]), (2, 4, 1), [(0, 4, 0), (2, 0, 1)]),
        (_set({"rate": "3/d, burst 3"}), (3, 0, 4), [(3, 0, 1), (3, 0, 0)]),
        (_share_a_limit, (4, 0, 3), [(4, 0, 0), (3, 0, 0)]),
    ],
)
def test_deliverable_is_what_a_dequeue_takes(
    queue: Queue,
    engine: Engine,
    hold_back: Callable[[Queue, Engine], object],
    of_queue: tuple[int, int, int],
    by_channel: list[tuple[int, int, int]],
) -> None:
    """Of the ready messages those are deliverable that workers get, heard or not; pauses and limits have the others."""
    hold_back(queue, engine)
    for channel in "aaaabbb":
        queue.enqueue(engine, channel=channel, payload=1)
    queue.enqueue(engine, channel="b", payload=1, delay=timedelta(hours=1))

    def parts() -> list[tuple[int, int, int]]:
        every: list[QueueStats | ChannelStats] = [queue.stats(engine), *queue.channels(engine)]
        assert all(one.ready == one.deliverable + one.paused + one.limited for one in every)
        return [(one.deliverable, one.paused, one.limited) for one in every]

    assert parts() == [of_queue, *by_channel]
    deliveries = queue.dequeue(engine, limit=100)
    assert len(deliveries) == of_queue[0]
    assert [one[0] for one in parts()] == [0, 0, 0]
    # What settlements free counts before a dequeue hears of it.
    queue.complete(engine, deliveries)
    freed = queue.stats(engine).deliverable
    assert freed == len(queue.dequeue(engine, limit=100))


def test_a_channels_policy(queue: Queue, engine: Engine) -> None:
    """A channel tells its policy, and whether and since when it is paused."""
    queue.configure_channel(
        engine,
        "a",
        ChannelPolicy(
            max_concurrency=4,
            rate=Rate(1, per=timedelta(milliseconds=1500), burst=2),
            weight=3,
            max_backlog=10,
            on_full="drop",
        ),
    )
    queue.pause(engine, "a")
    [stats] = queue.channels(engine)
    assert (stats.queue, stats.channel) == ("documents", "a")
    assert (stats.max_concurrency, stats.current_concurrency) == (4, 0)
    assert (stats.rate, stats.weight) == (Rate(2, per=timedelta(seconds=3), burst=2), 3)
    assert (stats.max_backlog, stats.on_full, stats.dropped) == (10, "drop", 0)
    assert stats.paused_at is not None
    assert stats.last_dequeue_at is None
    queue.configure(engine, max_concurrency=1)
    assert queue.stats(engine).noted_at is None
    queue.configure_channel(engine, "b", ChannelPolicy())
    assert [(one.on_full, one.paused_at) for one in queue.channels(engine, "b")] == [("raise", None)]


def test_pages_of_channels(queue: Queue, engine: Engine) -> None:
    """Channels come by name, as bytes; pages follow each other without gap or overlap."""
    names = ["Z", "a", "b", "é", "ü"]
    for name in reversed(names):
        queue.configure_channel(engine, name, ChannelPolicy())
    pages, last = [], None
    while page := [one.channel for one in queue.channels(engine, limit=2, after=last)]:
        pages.append(page)
        last = page[-1]
    assert pages == [["Z", "a"], ["b", "é"], ["ü"]]


async def test_targets(queue: Queue, engine: Engine, async_engine: AsyncEngine, connect: Connect) -> None:
    """Both are answered in the transaction of a session or connection, seeing what it has sent, or in their own."""
    connection = connect()
    queue.enqueue(connection, channel="a", payload=1)
    assert queue.stats(connection).channels == 1
    assert queue.stats(engine).channels == 0
    connection.rollback()
    with Session(engine) as session:
        queue.enqueue(session.connection(), channel="a", payload=1)
        queue.enqueue(session, channel="recorded only", payload=1)
        assert [one.channel for one in queue.channels(session)] == ["a"]
        assert queue.stats(session).ready == 1
    registry = scoped_session(sessionmaker(engine))
    assert queue.stats(registry) == NOTHING
    registry.remove()
    async with async_engine.connect() as asynchronous:
        await queue.enqueue(asynchronous, channel="a", payload=1)
        assert (await queue.stats(asynchronous)).ready == 1
        assert len(await queue.channels(asynchronous, "a")) == 1
    asynchronous_registry = async_scoped_session(async_sessionmaker(async_engine), lambda: 1)
    assert await queue.channels(asynchronous_registry) == []
    await asynchronous_registry.remove()


def test_busy_channels(queue: Queue, engine: Engine) -> None:
    """With busy=True only channels with messages are listed."""
    for name in "ab":
        queue.enqueue(engine, channel=name, payload=1)
    queue.complete(engine, queue.dequeue(engine, limit=1))
    assert [one.channel for one in queue.channels(engine)] == ["a", "b"]
    assert [one.channel for one in queue.channels(engine, busy=True)] == ["b"]
    assert queue.channels(engine, "a", busy=True) == []
