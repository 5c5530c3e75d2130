"""Shared figures are read once for all, and again when they are too old."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue.figures import SharedFigures
from tests.cli.messages import QUEUE, enqueue, lease

_LONG = timedelta(hours=1)


def test_many_readers_cost_one_reading(engine: Engine) -> None:
    """However many ask, the database answers once."""
    enqueue(engine, "a")
    read: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: read.append(arguments[2]))
    shared = SharedFigures(engine, keep=_LONG)
    with ThreadPoolExecutor(8) as readers:
        found = list(readers.map(lambda _: shared.get(), range(50)))
    assert len({id(figures) for figures in found}) == 1
    assert sum("fq_contention" in statement for statement in read) == 1


def test_rates_and_the_past(engine: Engine) -> None:
    """Two readings tell what was completed between them, and how the queue grew."""
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "a", "b")
    shared = SharedFigures(engine, keep=timedelta(microseconds=1))
    first = shared.get().queues[QUEUE.name]
    assert (first.completed, first.change_per_second) == (None, None)
    QUEUE.complete(engine, lease(engine, 2))
    while (second := shared.get().queues[QUEUE.name]) is first:
        pass
    assert second.completed == 2
    assert second.completed_per_second is not None
    assert second.change_per_second == pytest.approx(-second.completed_per_second)
    assert sum(second.completed_by_channel.values()) == 2
    assert shared.completed(QUEUE.name) == 2
    assert [point.backlog for point in shared.past(QUEUE.name)] == [3, 1]


async def test_async_engine(async_engine: AsyncEngine, engine: Engine) -> None:
    """The figures of an AsyncEngine are awaited, and get says so."""
    enqueue(engine, "a")
    shared = SharedFigures(async_engine, keep=_LONG)
    figures = await shared.aget()
    assert figures.queues[QUEUE.name].stats.ready == 1
    assert await shared.aget() is figures
    with pytest.raises(TypeError, match="await aget"):
        shared.get()


async def test_an_engine_in_an_event_loop(engine: Engine) -> None:
    """An Engine is used in a thread."""
    enqueue(engine, "a")
    assert (await SharedFigures(engine).aget()).queues[QUEUE.name].stats.ready == 1


def test_named_queues_only(engine: Engine) -> None:
    """Only the queues that were named are read, also one that nobody knows yet."""
    enqueue(engine, "a")
    assert list(SharedFigures(engine, [type(QUEUE)("other")]).get().queues) == ["other"]
