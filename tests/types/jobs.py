"""Calls of typed jobs that type checkers accept, and those that they must refuse, each marked at the end of its line.

test_type_checkers runs them over this file; nobody runs the file itself.
"""

# pyright: strict
# ruff: noqa: ARG001, TC002 - bodies do not matter here, and jobs resolve their annotations

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, assert_type
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Batch, Context, Enqueue, Queue, Receipt, Recurrence

if TYPE_CHECKING:
    from sqlalchemy import Engine

queue = Queue("documents")


@dataclass
class Page:
    """A dataclass."""

    number: int


@queue.job
def plain(upload: str, pages: int = 1) -> int:
    """Without context and session."""
    return len(upload) + pages


@queue.job(timeout=timedelta(minutes=1))
async def parse(context: Context, *, upload: str, page: Page | None = None) -> None:
    """With a context."""
    context.check()


@queue.job
def store(session: Session, order: UUID) -> None:
    """With a session."""
    session.flush()


@queue.job(kind="both")
async def both(context: Context, session: AsyncSession, *, order: UUID) -> str:
    """With context and session."""
    await session.flush()
    return f"{order}{context.lost}"


@queue.job
def clashing(name: str, where: str, job: str) -> None:
    """With names that methods have, too."""


@queue.job(batch=Batch(max_messages=50))
def embed(texts: list[str]) -> list[int]:
    """Of batches, without context and session."""
    return [len(text) for text in texts]


@queue.job(kind="print", batch=Batch(max_messages=50))
async def print_pages(context: Context, session: AsyncSession, pages: list[Page]) -> None:
    """Of batches, with context and session."""
    await session.flush()
    context.check()


async def accepted(session: Session, async_session: AsyncSession, engine: Engine, context: Context) -> None:
    """All of this is right."""
    assert_type(plain("a"), int)
    assert_type(plain("a", pages=2), int)
    assert_type(await parse(context, upload="a"), None)
    assert_type(await both(context, async_session, order=UUID(int=1)), str)
    assert_type(plain.enqueue(session, channel="a", upload="a"), Receipt)
    assert_type(plain.enqueue(session, "a", "a", 2), Receipt)
    assert_type(parse.prepare(channel="a", upload="a", page=Page(1)), Enqueue)
    assert_type(store.enqueue(engine, channel="a", order=UUID(int=1)).message_id, "int | None")
    assert_type(plain.result(engine, 17), int)
    assert_type(plain.result(engine, plain.enqueue(engine, "a", "a").message_id, channel="a"), int)
    queue.cancel(engine, queue.enqueue(session, channel="a", payload=1).message_id)
    queue.admin.retry_now(engine, queue.enqueue(engine, channel="a", payload=1).message_id)
    queue.result(engine, queue.enqueue(engine, channel="a", payload=1).message_id)
    assert_type(plain.result(engine, 17, timeout=timedelta(seconds=1)), int)
    assert_type(both.result(engine, 17), str)
    assert_type(await both.result(async_session, 17), str)
    assert_type(await plain.result(async_session, 17), int)
    assert_type(both.enqueue(async_session, channel="a", order=UUID(int=1)), Receipt)
    assert_type(clashing.enqueue(engine, channel="a", name="n", where="w", job="j").message_id, "int | None")
    clashing.schedule(engine, "nightly", Recurrence(cron="0 3 * * *"), "a", name="n", where="w", job="j")
    assert_type(embed.enqueue(session, "a", "one"), Receipt)
    assert_type(await embed.enqueue(AsyncEngine(engine), "a", "one"), Receipt)
    assert_type(print_pages.options(key="k").prepare("a", Page(1)), Enqueue)
    print_pages.schedule(engine, "nightly", Recurrence(cron="0 3 * * *"), "a", Page(1))
    embed(["one", "two"])
    await print_pages(context, async_session, [Page(1)])
    with queue.group(session) as group:
        assert_type(group.enqueue(clashing, "a", name="n", where="w", job="j"), Receipt)
        assert_type(group.enqueue(print_pages, "a", Page(1)), Receipt)
    parse.options(delay=timedelta(seconds=1), key="k").enqueue(async_session, channel="a", upload="b")
    queue.enqueue_many(session, [plain.prepare("a", "b"), parse.prepare("a", upload="b")])


async def refused(session: Session, async_engine: AsyncEngine, context: Context) -> None:
    """All of this is wrong."""
    plain.enqueue(session, channel="a")  # WRONG: an argument is missing
    plain.enqueue(session, upload="a")  # WRONG: the channel is missing
    plain.enqueue(session, channel="a", upload=3)  # WRONG: it is no string
    plain.enqueue(session, channel="a", upload="a", page=3)  # WRONG: there is no such argument
    clashing.enqueue(session, "a", name="n", where="w")  # WRONG: an argument is missing
    plain.enqueue(channel="a", upload="a")  # WRONG: the session is missing
    parse.prepare("a", "b")  # WRONG: it is given by name alone
    parse.prepare("a", upload="b", page={"number": 1})  # WRONG: it is no Page
    parse.prepare("a", upload="b", context=context)  # WRONG: the worker gives the context
    store.enqueue(session, "a", session, UUID(int=1))  # WRONG: the worker gives the session
    store.enqueue(session, "a", order="a")  # WRONG: it is no UUID
    parse.options(delay=3)  # WRONG: it is no timedelta
    parse.options(kind="other")  # WRONG: there is no such option
    await both.enqueue(async_engine, "a", order=None)  # WRONG: it is not optional
    await both(context, session, order=UUID(int=1))  # WRONG: it takes an AsyncSession
    await parse(upload="a")  # WRONG: the context is missing
    embed.enqueue(session, "a", ["one"])  # WRONG: each message has one text
    embed.enqueue(session, "a")  # WRONG: the text is missing
    print_pages.prepare("a", "one")  # WRONG: it is no Page
    embed("one")  # WRONG: the function takes a list
