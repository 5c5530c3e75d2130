"""What a handler sees of an ordering key."""

from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, Queue
from sqlalchemy_fairqueue.testing import make_delivery
from tests.worker import isolated
from tests.worker.helpers import auntil, send

_KEYS = ("session-42", "schlüssel \N{SNOWMAN}", None)


@pytest.mark.parametrize("limit", [1, 10])
def test_a_delivery_has_it(queue: Queue, engine: Engine, limit: int) -> None:
    """It comes with the delivery, alone and among others, as that of a message without one shows none."""
    for key in _KEYS:
        send(engine, queue, 1, ordering_key=key)
    found = [delivery for _ in _KEYS for delivery in queue.dequeue(engine, limit=limit)]
    assert [delivery.ordering_key for delivery in found] == list(_KEYS)
    assert make_delivery(queue, 1, ordering_key=_KEYS[0]).ordering_key == _KEYS[0]


@pytest.mark.usefixtures("forked_children")
async def test_handlers_see_it(queue: Queue, engine: Engine, async_engine: AsyncEngine, tmp_path: Path) -> None:
    """A plain handler, an async one and one in a child process."""
    seen: dict[str, str | None] = {}

    @queue.handler("plain")
    def plain(delivery: Delivery) -> None:
        seen["plain"] = delivery.ordering_key

    @queue.handler("async")
    async def asynchronous(_: Delivery, context: Context) -> None:
        seen["async"] = context.delivery.ordering_key

    queue.handler("isolated", isolation="process")(isolated.say_ordering_key)
    for kind in ("plain", "async", "isolated"):
        send(engine, queue, {"folder": str(tmp_path)}, kind=kind, ordering_key=kind)
    said = tmp_path / "ordering key-1"
    async with AsyncWorker(async_engine, queue, housekeeping=False):
        await auntil(lambda: len(seen) == 2 and said.exists(), "all have run")
    assert seen == {"plain": "plain", "async": "async"}
    assert said.read_text() == "isolated"
