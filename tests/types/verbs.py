"""Verbs of a queue that type checkers accept, and those that they must refuse, each marked at the end of its line.

test_type_checkers runs them over this file; nobody runs the file itself.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Delivery, Queue, Worker
from sqlalchemy_fairqueue.reports import CancelReceipt, ChannelStats, Deliveries, QueueStats
from sqlalchemy_fairqueue.testing import assert_enqueued

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
    from sqlalchemy.orm import Session

queue = Queue("documents")


def plain(engine: Engine, connection: Connection, session: Session, delivery: Delivery) -> None:
    """What is sync returns at once."""
    assert_type(queue.stats(engine), QueueStats)
    assert_type(queue.channels(session, "a", limit=3, busy=True), list[ChannelStats])
    assert_type(queue.cancel(connection, 1), CancelReceipt)
    assert_type(queue.dequeue(engine, limit=3), Deliveries)
    queue.configure_channel(session, "a", weight=3, rate=None)
    queue.complete(session, delivery, cost=3)
    queue.channels(engine, limit="3")  # WRONG: it is no int
    queue.channels(engine, nothing=3)  # WRONG: there is no such argument
    queue.configure_channel(session, "a", weigth=3)  # WRONG: there is no such field
    queue.pause("a")  # WRONG: it is no session, connection or engine
    queue.dequeue(session)  # WRONG: it needs an engine
    queue.purge(engine)  # WRONG: an argument is missing
    Worker(engine, queue, concurrency=3, name=None)
    Worker(engine, queue, concurrency="3")  # WRONG: it is no int
    Worker(engine, queue, worker_engine=engine)  # WRONG: it is an argument of an AsyncWorker


async def awaited(engine: AsyncEngine, connection: AsyncConnection, session: AsyncSession, delivery: Delivery) -> None:
    """What is async is awaited, but for what an AsyncSession only records."""
    assert_type(await queue.stats(engine), QueueStats)
    assert_type(await queue.channels(session, "a", limit=3, busy=True), list[ChannelStats])
    assert_type(await queue.cancel(connection, 1), CancelReceipt)
    assert_type(queue.cancel(session, 1), CancelReceipt)
    assert_type(await queue.dequeue(engine, limit=3), Deliveries)
    await queue.configure_channel(engine, "a", weight=3, rate=None)
    queue.complete(session, delivery, cost=3)
    await assert_enqueued(session, queue, channel="a")
    assert_enqueued(session, queue, channel="a")  # WRONG: the await is forgotten
    await queue.channels(engine, limit="3")  # WRONG: it is no int
    await queue.dequeue(connection)  # WRONG: it needs an engine
    await queue.complete(session, delivery)  # WRONG: it is recorded, and nothing to await
    queue.stats(engine)  # WRONG: the await is forgotten
    queue.pause(engine, "a")  # WRONG: the await is forgotten
    queue.complete(connection, delivery)  # WRONG: the await is forgotten


def unknown_name() -> None:
    """A name that the package does not have, though it imports some only when they are asked for."""
    sqlalchemy_fairqueue.Wroker()  # WRONG: no such name
