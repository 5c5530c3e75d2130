"""Typed jobs in workers: arguments come back, payloads that do not fit, old and new signatures side by side."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, Queue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.helpers import LATER, count_effects, drained, send


@pytest.mark.usefixtures("effects")
def test_a_plain_job(queue: Queue, engine: Engine, database: Database) -> None:
    """It gets its context, its session and its arguments, and its writes are committed with the completion."""
    found = []

    @queue.job
    def pay(context: Context, session: Session, *, order: UUID, amount: Decimal = Decimal(1)) -> None:
        session.execute(text("insert into effect values (:id)"), {"id": context.delivery.message_id})
        found.append((order, amount, context.delivery.channel))

    order = uuid4()
    pay.enqueue(engine, "a", order=order, amount=Decimal("9.90"))
    pay.enqueue(engine, "b", order=order)
    assert drained(engine, queue).stats.completed == 2
    assert sorted(found) == [(order, Decimal(1), "b"), (order, Decimal("9.90"), "a")]
    assert count_effects(database) == 2


async def test_an_async_job(queue: Queue, async_engine: AsyncEngine) -> None:
    """An AsyncWorker awaits it, with an AsyncSession."""
    found = []

    @queue.job
    async def greet(session: AsyncSession, name: str) -> None:
        found.append(await session.scalar(text("select 'hello ' || :name"), {"name": name}))

    async with AsyncSession(async_engine) as session:
        greet.enqueue(session, "a", "Ada")
        await session.commit()
    await AsyncWorker(async_engine, queue, housekeeping=False).run(drain=True)
    assert found == ["hello Ada"]


def test_handlers_beside_jobs(queue: Queue, engine: Engine) -> None:
    """One worker serves both, and a job can be enqueued by its kind and a plain payload, too."""
    found: list[Any] = []

    @queue.job
    def parse(upload: str) -> None:
        found.append(upload)

    @queue.handler("call")
    def call(delivery: Delivery) -> None:
        found.append(delivery.payload)

    parse.enqueue(engine, "a", upload="typed")
    send(engine, queue, {"upload": "plain"}, kind="parse")
    send(engine, queue, [1], kind="call")
    drained(engine, queue)
    assert sorted(found, key=str) == [[1], "plain", "typed"]


_UNFIT: list[tuple[object, str]] = [
    ({}, "Object missing required field `upload`"),
    ({"upload": 3}, "payload at $.upload: argument 'upload' of job 'parse' is 3: Expected `str`, got `int`"),
    ({"upload": "a", "due": {"days": "x"}}, "payload at $.due: argument 'due' of job 'parse' is {'days': 'x'}"),
    ([1], "job 'parse' takes (upload: str, due:"),
    (None, "Expected `object`, got `null`"),
]


def test_a_payload_that_does_not_fit(queue: Queue, engine: Engine) -> None:
    """It is a dead letter at the first attempt, which says what does not fit; nothing of the application is called."""
    called: list[object] = []

    @queue.middleware
    def note(context: Context, proceed: Callable[[], Any]) -> Any:
        called.append(context)
        return proceed()

    @queue.job
    def parse(upload: str, due: timedelta | None = None) -> None:
        called.append((upload, due))

    sent = send(engine, queue, *(payload for payload, _ in _UNFIT), kind="parse")
    drained(engine, queue)
    dead = {letter.message_id: letter for letter in queue.dead_letters.list(engine)}
    assert called == []
    for message_id, (_, words) in zip(sent, _UNFIT, strict=True):
        assert dead[message_id].attempts == 1
        assert words in (dead[message_id].reason or "")


def test_payloads_of_other_versions(engine: Engine, clock: Clock) -> None:
    """A new argument with a default, and one that is given up, keep messages of the old function alive.

    A worker that does not know an argument leaves the message uncounted to those that do.
    """
    old, new, found = Queue("documents"), Queue("documents"), list[Any]()

    @old.job(kind="parse")
    def parse_of_old(upload: str, color: str) -> None:
        found.append((upload, color))

    @new.job(kind="parse", former=["color"])
    def parse_of_new(context: Context, upload: str, pages: int = 7) -> None:
        found.append((upload, pages, context.delivery.attempt))

    parse_of_old.enqueue(engine, "a", "x", color="red")
    drained(engine, new)
    assert found == [("x", 7, 1)]
    parse_of_new.enqueue(engine, "a", "y", pages=3)
    assert drained(engine, old, retry=LATER).stats.released == 1
    assert len(found) == 1
    clock.advance(timedelta(hours=1))
    drained(engine, new)
    assert found[1:] == [("y", 3, 1)]
