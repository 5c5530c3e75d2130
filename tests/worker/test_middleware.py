"""Middleware around handlers: order, results, transactions, and what is refused."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, InvalidArgument, Queue, Release, Worker
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.testing import aperform, drain, perform
from tests.fixtures.database import Database
from tests.worker.helpers import count_effects, drained, send, write_effect

Steps = list[str]


def _around(steps: Steps, name: str) -> Callable[[Context, Callable[[], Any]], Any]:
    def around(context: Context, proceed: Callable[[], Any]) -> Any:
        steps.append(f"{name} before {context.delivery.channel}")
        result = proceed()
        steps.append(f"{name} after")
        return result

    return around


def _async_around(steps: Steps, name: str) -> Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]:
    async def around(context: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        steps.append(f"{name} before {context.delivery.channel}")
        result = await proceed()
        steps.append(f"{name} after")
        return result

    return around


async def test_the_order(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """The worker's goes around the queue's, and the one that was declared first around the next.

    Async middleware goes around async handlers, plain one around plain ones.
    """
    steps: Steps = []
    queue.middleware(_around(steps, "first"))
    queue.middleware(_async_around(steps, "async"))
    queue.middleware(_around(steps, "second"))

    @queue.handler("plain")
    def plain(_: Delivery, session: Session) -> None:
        session.execute(text("select 1"))
        steps.append("handler")

    @queue.handler("async")
    async def asynchronous(_: Delivery, session: AsyncSession) -> None:
        await session.execute(text("select 1"))

    send(engine, queue, 1, kind="plain", channel="p")
    send(engine, queue, 1, kind="async", channel="a")
    worker = AsyncWorker(
        async_engine, queue, housekeeping=False, concurrency=1, sync_session_factory=sessionmaker(engine),
        middleware=[_around(steps, "outer")],
    )  # fmt: skip
    await worker.run(drain=True)
    i = steps.index("outer before p")
    assert steps[i : i + 7] == [
        "outer before p", "first before p", "second before p", "handler", "second after", "first after", "outer after",
    ]  # fmt: skip
    assert sorted(steps[:i] + steps[i + 7 :]) == ["async after", "async before a"]
    assert worker.stats.completed == 2


@pytest.mark.usefixtures("effects")
def test_the_transaction_is_the_handlers(queue: Queue, engine: Engine, database: Database) -> None:
    """What a middleware writes with the session is committed with the completion, and rolled back with a failure."""

    @queue.middleware
    def write(context: Context, proceed: Callable[[], Any]) -> Any:
        write_effect(context.session, context.delivery)
        return proceed()

    @queue.handler
    def handle(delivery: Delivery, session: Session) -> None:
        written = text("select count(*) from effect where message_id = :id")
        assert session.scalar(written, {"id": delivery.message_id}) == 1
        if delivery.payload == "fail":
            raise ValueError("no")

    send(engine, queue, "fail", "work", max_attempts=1)
    drained(engine, queue)
    assert count_effects(database) == 1
    assert [one.reason for one in queue.dead_letters.list(engine)] == ["attempts exhausted"]


def test_an_outcome_in_place_of_the_handler(queue: Queue, engine: Engine) -> None:
    """A middleware may decide without the handler, by an outcome or an exception."""

    @queue.middleware
    def refuse(context: Context, proceed: Callable[[], Any]) -> Any:
        if context.delivery.payload == "broken":
            raise ValueError("broken")
        return Release() if context.delivery.payload == "other" and context.delivery.deliveries == 1 else proceed()

    handled = []

    @queue.handler
    def handle(delivery: Delivery) -> None:
        handled.append((delivery.payload, delivery.attempt))

    send(engine, queue, "broken", "other", "work", max_attempts=1)
    drained(engine, queue)
    assert sorted(handled) == [("other", 1), ("work", 1)]
    [dead] = queue.dead_letters.list(engine)
    assert "ValueError: broken" in (dead.error or "")


async def test_in_tests_of_applications(queue: Queue, engine: Engine) -> None:
    """Perform and drain call the middleware of the queue too, with the session of the handler; aperform awaits it."""
    found: list[object] = []

    @queue.middleware
    def note(context: Context, proceed: Callable[[], Any]) -> Any:
        found.append(context.session)
        return proceed()

    queue.middleware(_async_around(steps := Steps(), "async"))

    @queue.handler("with")
    def takes(_: Delivery, session: Session) -> None:
        """Take one."""

    queue.handler("without")(lambda _: None)

    @queue.handler
    async def handle(_: Delivery) -> None:
        await asyncio.sleep(0)
        steps.append("handler")

    with Session(engine) as session:
        perform(queue, 1, kind="with", session=session)
        perform(queue, 1, kind="without", session=session)
        queue.enqueue(session, channel="a", payload=1, kind="with")
        drain(session, queue)
        assert found == [session, None, session]
    await aperform(queue, 1)
    assert steps == ["async before test", "handler", "async after"]


def test_a_handler_without_middleware(queue: Queue, engine: Engine) -> None:
    """A worker does not start where a handler would silently go without."""
    queue.middleware(_async_around([], "async"))

    @queue.handler
    def handle(_: Delivery) -> None:
        """Handle nothing."""

    with pytest.raises(WorkerError, match=r"is plain, and all middleware is async: .* declare a plain middleware too"):
        Worker(engine, queue).start()
    with pytest.raises(WorkerError, match="is plain"):
        perform(queue, 1)


def _one(_: object) -> None: ...


def _generator(context: object, proceed: Callable[[], object]) -> Iterator[object]:
    yield context, proceed


@pytest.mark.parametrize("wrong", [_one, _generator, 17])
def test_what_cannot_be_middleware(queue: Queue, wrong: Any, engine: Engine) -> None:
    """It is refused where it is declared, and by the worker that is given it."""
    with pytest.raises(InvalidArgument, match="middleware"):
        queue.middleware(wrong)
    with pytest.raises(InvalidArgument, match="middleware"):
        Worker(engine, queue, middleware=[wrong])
