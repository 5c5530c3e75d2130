"""Results of handlers of batches: one for each message."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    AsyncWorker,
    Batch,
    Context,
    Delivery,
    MessageFailed,
    Queue,
    ResultNotKept,
    ResultNotReady,
    Worker,
)
from sqlalchemy_fairqueue.testing import drain
from tests.results import isolated
from tests.results.conftest import HOUR
from tests.results.isolated import Page
from tests.worker.helpers import send

_BATCH = Batch(max_messages=5)


def _run(engine: Engine, queue: Queue) -> None:
    Worker(engine, queue, concurrency=1, housekeeping=False).run(drain=True)


def test_each_message_has_its_own(engine: Engine, queue: Queue) -> None:
    """The results are in the order of the deliveries; None says that no message has one."""

    @queue.handler("plain", batch=_BATCH)
    def double(deliveries: list[Delivery]) -> list[int]:
        return [2 * delivery.payload for delivery in deliveries]

    @queue.handler("session", batch=_BATCH)
    def double_in_session(deliveries: list[Delivery], session: Session) -> list[int]:
        session.flush()
        return double(deliveries)

    @queue.handler("none", batch=_BATCH)
    def nothing(_: list[Delivery]) -> None: ...

    ids = {kind: send(engine, queue, 1, 2, 3, kind=kind) for kind in ("plain", "session", "none")}
    _run(engine, queue)
    found = {kind: [queue.result(engine, one) for one in sent] for kind, sent in ids.items()}
    assert found == {"plain": [2, 4, 6], "session": [2, 4, 6], "none": [None] * 3}


async def test_in_a_loop(async_engine: AsyncEngine, engine: Engine, queue: Queue) -> None:
    """So it is with coroutines."""

    @queue.handler(batch=_BATCH)
    async def double(deliveries: list[Delivery], session: AsyncSession) -> list[int]:
        await session.flush()
        return [2 * delivery.payload for delivery in deliveries]

    ids = send(engine, queue, 1, 2, 3)
    await AsyncWorker(async_engine, queue, concurrency=1, housekeeping=False).run(drain=True)
    assert [queue.result(engine, one) for one in ids] == [2, 4, 6]


@pytest.mark.usefixtures("forked_children")
def test_jobs(engine: Engine, queue: Queue) -> None:
    """A job's results have the type of the items of its list, also from a child process."""

    @queue.job(batch=_BATCH)
    def number(numbers: list[int]) -> list[Page] | None:
        return [Page(one) for one in numbers]

    ids = [number.enqueue(engine, "a", one).message_id for one in (1, 2)]
    isolated.queue.configure(engine, result_retention=HOUR)
    others = [isolated.pages.enqueue(engine, "a", one).message_id for one in (3, 4)]
    _run(engine, queue)
    _run(engine, isolated.queue)
    assert [number.result(engine, one) for one in ids] == [Page(1), Page(2)]
    assert [isolated.pages.result(engine, one) for one in others] == [Page(3), Page(4)]


def test_another_number_of_results(engine: Engine, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """The messages are completed, for the handler has done its work; who asks for a result is told what was wrong."""
    wrong: dict[str, tuple[object, str]] = {
        "too few": ([1, 2], "it is a list of 2 for a batch of 3"),
        "dict": ({"a": 1}, "it is a dict for a batch of 3"),
        "str": ("abc", "it is a str for a batch of 3"),
    }

    def declare(kind: str, returned: object) -> list[int]:
        queue.handler(kind, batch=_BATCH)(lambda deliveries: returned)  # noqa: ARG005 - named as it is asked for
        return send(engine, queue, 1, 2, 3, kind=kind, channel=kind)

    ids = {kind: declare(kind, returned) for kind, (returned, _) in wrong.items()}
    with caplog.at_level(logging.WARNING, logger="sqlalchemy_fairqueue"):
        _run(engine, queue)
    for kind, (_, problem) in wrong.items():
        assert problem in caplog.text
        for one in ids[kind]:
            with pytest.raises(ResultNotKept, match=problem):
                queue.result(engine, one)
    stats = queue.stats(engine)
    assert (stats.ready, stats.scheduled, stats.dead) == (0, 0, 0)


def test_single_ones_that_have_none(engine: Engine, queue: Queue) -> None:
    """One that cannot be kept, is buried or tried again leaves the others theirs."""

    @queue.handler(batch=_BATCH)
    def handle(deliveries: list[Delivery], context: Context) -> list[Any]:
        context.bury(deliveries[1], "bad")
        context.retry(deliveries[2], delay=timedelta(hours=1))
        return [{1}, "buried", "retried", "kept"]

    unkept, buried, retried, kept = send(engine, queue, 1, 2, 3, 4)
    _run(engine, queue)
    assert queue.result(engine, kept) == "kept"
    with pytest.raises(ResultNotKept, match="a set cannot be encoded"):
        queue.result(engine, unkept)
    with pytest.raises(MessageFailed, match="bad"):
        queue.result(engine, buried)
    with pytest.raises(ResultNotReady):
        queue.result(engine, retried)


def test_inline(engine: Engine, queue: Queue) -> None:
    """Drain calls it with one message, and keeps its result."""

    @queue.job(batch=_BATCH)
    def number(numbers: list[int]) -> list[Page]:
        return [Page(one) for one in numbers]

    with Session(engine) as session:
        number.enqueue(session, "a", 7)
        [performed] = drain(session, queue)
        assert performed.result == [Page(7)]
        assert number.result(session, performed.delivery.message_id) == Page(7)
