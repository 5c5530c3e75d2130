"""Handlers that wait for the results of other messages: they are warned, for nobody may be left to do the work."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, ResultNotReady
from sqlalchemy_fairqueue.errors import HandlerWaitWarning
from sqlalchemy_fairqueue.testing import aperform, perform
from tests.worker.helpers import drained, send

_TEXT = r"the handler of kind '\w+' waits for a result: .* enqueue the messages as a group"
_SHORT = timedelta(milliseconds=1)


# A warning is an error here: by it the one attempt has failed.
_WARNED = re.compile(f"HandlerWaitWarning: {_TEXT}")


async def test_who_waits(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A handler that waits gets the warning at its line, also in a thread that takes over its context, and awaiting."""

    @queue.job
    def child() -> None: ...

    other: int | None = None
    waits: dict[str, Any] = {
        "queue": lambda: queue.result(engine, other, timeout=_SHORT),
        "job": lambda: child.result(engine, other, timeout=_SHORT),
        "thread": lambda: asyncio.run(asyncio.to_thread(queue.result, engine, other, timeout=_SHORT)),
    }
    queue.handler(lambda delivery: waits[delivery.payload]())

    @queue.handler("async")
    async def handle(_: Delivery) -> Any:
        return await queue.result(async_engine, other, timeout=_SHORT)

    [other] = send(engine, queue, {}, kind="child", delay=timedelta(hours=1))
    send(engine, queue, *waits, max_attempts=1)
    send(engine, queue, 1, kind="async", max_attempts=1)
    await AsyncWorker(async_engine, queue, housekeeping=False).run(drain=True)
    letters = queue.dead_letters.list(engine)
    assert [bool(_WARNED.search(letter.error or "")) for letter in letters] == [True] * 4
    for asks in waits:
        with pytest.warns(HandlerWaitWarning, match=_TEXT) as found, pytest.raises(ResultNotReady):
            await asyncio.to_thread(perform, queue, asks)
        assert asks == "thread" or found[0].filename == __file__
    with pytest.warns(HandlerWaitWarning, match=_TEXT) as found, pytest.raises(ResultNotReady):
        await aperform(queue, 1, kind="async")
    assert found[0].filename == __file__


def test_who_does_not_wait(queue: Queue, engine: Engine) -> None:
    """A handler that asks without waiting gets none, nor does a caller outside of handlers, before or after one ran."""

    @queue.handler
    def handle(_: Delivery) -> None:
        for timeout in (None, timedelta()):
            with pytest.raises(ResultNotReady):
                queue.result(engine, other, timeout=timeout)

    [other] = send(engine, queue, 1, delay=timedelta(hours=1))
    send(engine, queue, 1)
    assert drained(engine, queue).stats.completed == 1
    perform(queue, 1)
    with pytest.raises(ResultNotReady):
        queue.result(engine, other, timeout=_SHORT)
