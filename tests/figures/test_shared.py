"""Shared figures are read once for all, and again when they are too old."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from operator import attrgetter

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.figures.channels import take_sample
from sqlalchemy_fairqueue.figures.queues import QueueFigures
from sqlalchemy_fairqueue.figures.shared import SharedFigures
from tests.cli.messages import QUEUE, enqueue, lease, statements
from tests.fixtures.clock import Clock

_LONG = timedelta(hours=1)


def test_many_readers_cost_one_reading(engine: Engine) -> None:
    """However many ask, the database answers once."""
    enqueue(engine, "a")
    read = statements(engine)
    shared = SharedFigures(engine, keep=_LONG)
    with ThreadPoolExecutor(8) as readers:
        found = list(readers.map(lambda _: shared.get(), range(50)))
    assert len({id(figures) for figures in found}) == 1
    assert sum("fq_contention" in statement for statement in read) == 1


def test_rates_and_the_past(engine: Engine) -> None:
    """Two readings tell what was completed between them, and how the queue grew."""
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "a", "b")
    shared = SharedFigures(engine)
    first = shared.get().queues[QUEUE.name]
    assert (first.completed, first.change_per_second) == (None, None)
    QUEUE.complete(engine, lease(engine, 2))
    shared.forget()
    second = shared.get().queues[QUEUE.name]
    assert second.completed == 2
    assert second.completed_per_second is not None
    assert second.change_per_second == pytest.approx(-second.completed_per_second)
    assert sum(second.completed_by_channel.values()) == 2
    assert shared.completed(QUEUE.name) == 2
    assert [point.backlog for point in shared.past(QUEUE.name)] == [3, 1]


@pytest.mark.parametrize("heard", [False, True])
def test_top_and_the_dashboard_agree(engine: Engine, *, heard: bool) -> None:
    """Both have the same counts and ages of each channel and of the queue, whether the dispatcher has heard of all."""
    QUEUE.configure_channel(engine, "aged", priority_aging=timedelta(minutes=1))
    enqueue(engine, "a", "a", "a", "b", "aged")
    enqueue(engine, "b", "aged", priority=3)
    enqueue(engine, "a", "later", delay=timedelta(hours=1))
    [one, *_] = lease(engine, 3)
    QUEUE.retry(engine, one, delay=timedelta(0))
    enqueue(engine, "new")
    if heard:
        QUEUE.pause(engine)
        lease(engine, 1)
    sample = take_sample(engine, None, [QUEUE], None)
    figures = SharedFigures(engine).get().queues[QUEUE.name]
    facts = attrgetter("ready", "scheduled", "leased", "oldest_ready_at", "current_concurrency")
    shown = {each.channel: facts(each) for each in figures.contention.channels}
    assert shown == {each.channel: facts(each) for each in sample.channels}
    counts = [sum(column) for column in list(zip(*shown.values(), strict=True))[:3]]
    assert [figures.stats.ready, figures.stats.scheduled, figures.stats.leased] == counts
    assert figures.stats.oldest_ready_at == min(since for *_, since, _ in shown.values() if since)
    assert figures.contention.waiting == sum(since is not None for *_, since, _ in shown.values())


def test_a_long_pause(engine: Engine, clock: Clock) -> None:
    """The first figures after it read no history, and nothing of before it counts as rate."""
    QUEUE.configure(engine, history=True)
    read = statements(engine)
    shared = SharedFigures(engine, keep=timedelta(seconds=2))

    def figures_after(pause: timedelta) -> QueueFigures:
        enqueue(engine, "a")
        QUEUE.complete(engine, lease(engine, 1))
        clock.advance(pause)
        read.clear()
        shared.forget()
        return shared.get().queues[QUEUE.name]

    shared.get()
    assert figures_after(timedelta(minutes=4)).completed == 1
    assert any("fq_completions" in statement for statement in read)
    after = figures_after(timedelta(hours=1))
    assert not any("fq_completions" in statement for statement in read)
    assert (after.completed, after.completed_per_second, after.change_per_second) == (None, None, None)
    assert figures_after(timedelta(minutes=1)).completed == 1
    figures_after(timedelta(minutes=4.5))
    assert shared.completed(QUEUE.name) == 3


def test_figures_that_are_kept_for_long(engine: Engine, clock: Clock) -> None:
    """What is completed is counted from one reading to the next also where hours lie between them."""
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "b")
    shared = SharedFigures(engine, keep=_LONG)
    for number in range(3):
        shared.forget()
        shared.get()
        assert shared.completed(QUEUE.name) == number
        QUEUE.complete(engine, lease(engine, 1))
        clock.advance(1.5 * _LONG)


async def test_async_engine(async_engine: AsyncEngine, engine: Engine) -> None:
    """The figures of an AsyncEngine are awaited, and get says so; an Engine is used in a thread. Only the queues that
    were named are read, also one that nobody knows yet.
    """
    enqueue(engine, "a")
    shared = SharedFigures(async_engine, keep=_LONG)
    figures = await shared.aget()
    assert figures.queues[QUEUE.name].stats.ready == 1
    assert await shared.aget() is figures
    with pytest.raises(TypeError, match="await aget"):
        shared.get()
    assert (await SharedFigures(engine).aget()).queues[QUEUE.name].stats.ready == 1
    assert list((await SharedFigures(engine, [Queue("other")]).aget()).queues) == ["other"]


async def test_slow_readings_go_on_in_the_background(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for figures that take long, unless there are none, those at hand are old, or something changed."""
    now = 0.0
    monkeypatch.setattr("sqlalchemy_fairqueue.figures.shared.monotonic", lambda: now)
    monkeypatch.setattr("sqlalchemy_fairqueue.figures.shared.PATIENCE_SECONDS", 0.0)
    enqueue(engine, "a")
    shared = SharedFigures(engine, keep=timedelta(seconds=2))
    first = await shared.aget()
    now = 3.0
    assert await shared.aget() is first
    assert shared._background is not None
    second = await shared._background
    assert second is not first
    assert await shared.aget() is second
    now = 300.0
    assert await shared.aget() is not second
    enqueue(engine, "b")
    shared.forget()
    assert (await shared.aget()).queues[QUEUE.name].stats.ready == 2


def test_a_change_during_a_reading(engine: Engine) -> None:
    """Figures whose reading had begun when something changed are read anew by the next one who looks."""
    enqueue(engine, "a")
    shared = SharedFigures(engine, keep=_LONG)
    event.listen(engine, "before_cursor_execute", lambda *_: shared.forget(), once=True)
    first = shared.get()
    second = shared.get()
    assert second is not first
    assert shared.get() is second
