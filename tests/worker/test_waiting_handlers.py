"""Handlers that wait for the results of other messages: they are warned, for nobody may be left to do the work."""

import asyncio
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, ResultNotReady, Worker
from sqlalchemy_fairqueue.errors import HandlerWaitWarning
from sqlalchemy_fairqueue.testing import aperform, perform
from tests.worker.helpers import send

_TEXT = r"the handler of kind 'default' waits for a result: .* enqueue the messages as a group"
_SHORT = timedelta(milliseconds=1)


# A warning is an error here: by it the one attempt has failed.
_WARNED = re.compile(f"HandlerWaitWarning: {_TEXT}")


def test_a_plain_handler(queue: Queue, engine: Engine) -> None:
    """A handler that waits gets the warning at its line, also in a thread that takes over its context."""

    @queue.job
    def child() -> None: ...

    other: int | None = None
    waits: dict[str, Any] = {
        "queue": lambda: queue.result(engine, other, timeout=_SHORT),
        "job": lambda: child.result(engine, other, timeout=_SHORT),
        "thread": lambda: asyncio.run(asyncio.to_thread(queue.result, engine, other, timeout=_SHORT)),
    }
    queue.handler(lambda delivery: waits[delivery.payload]())
    [other] = send(engine, queue, {}, kind="child", delay=timedelta(hours=1))
    send(engine, queue, *waits, max_attempts=1)
    Worker(engine, queue, housekeeping=False).run(drain=True)
    letters = queue.dead_letters.list(engine)
    assert [bool(_WARNED.search(letter.error or "")) for letter in letters] == [True] * 3
    for asks in waits:
        with pytest.warns(HandlerWaitWarning, match=_TEXT) as found, pytest.raises(ResultNotReady):
            perform(queue, asks)
        assert asks == "thread" or found[0].filename == __file__


async def test_an_async_handler(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """So does one that awaits."""

    @queue.handler
    async def handle(_: Delivery) -> Any:
        return await queue.result(async_engine, other, timeout=_SHORT)

    [other] = send(engine, queue, 1, delay=timedelta(hours=1))
    send(engine, queue, 1, max_attempts=1)
    await AsyncWorker(async_engine, queue, housekeeping=False).run(drain=True)
    [letter] = queue.dead_letters.list(engine)
    assert _WARNED.search(letter.error or "")
    with pytest.warns(HandlerWaitWarning, match=_TEXT) as found, pytest.raises(ResultNotReady):
        await aperform(queue, 1)
    assert found[0].filename == __file__


def test_who_does_not_wait(queue: Queue, engine: Engine) -> None:
    """A handler that asks without waiting gets none, nor does a caller outside of handlers, before or after one ran."""

    @queue.handler
    def handle(_: Delivery) -> None:
        with pytest.raises(ResultNotReady):
            queue.result(engine, other)
        with pytest.raises(ResultNotReady):
            queue.result(engine, other, timeout=timedelta())
        begun.set()

    begun = threading.Event()
    [other] = send(engine, queue, 1, delay=timedelta(hours=1))
    send(engine, queue, 1)
    worker = Worker(engine, queue, housekeeping=False)
    worker.run(drain=True)
    assert (begun.is_set(), worker.stats.completed) == (True, 1)
    perform(queue, 1)
    with pytest.raises(ResultNotReady):
        queue.result(engine, other, timeout=_SHORT)
