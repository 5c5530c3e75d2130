"""Messages that are not settled, found by their id and by their channel."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import InvalidArgument, Queue

queue = Queue("documents")


def _enqueue(engine: Engine, *payloads: object, **fields: Any) -> list[int]:
    with Session(engine) as session:
        receipts = [
            queue.enqueue(session, **{"channel": "customer-7", "payload": payload, **fields}) for payload in payloads
        ]
        session.commit()
    return [receipt.message_id or 0 for receipt in receipts]


def test_one_message(engine: Engine) -> None:
    """It is found with all that is known of it, until it is settled."""
    [message_id] = _enqueue(engine, {"text": "x" * 100_000}, kind="parse", key="k", headers={"trace": "t"})
    found = queue.message(engine, message_id)
    assert found is not None
    assert (found.channel, found.kind, found.key, found.headers) == ("customer-7", "parse", "k", '{"trace": "t"}')
    assert queue.codec.decode(found.content) == {"text": "x" * 100_000}
    assert (found.attempts, found.deliveries, found.state(datetime.now(UTC))) == (0, 0, "ready")
    [delivery] = queue.dequeue(engine)
    found = queue.message(engine, message_id)
    assert found is not None
    assert (found.consumer, found.state(datetime.now(UTC))) == (delivery.lease.consumer, "leased")
    queue.complete(engine, delivery)
    assert queue.message(engine, message_id) is None
    assert Queue("others").message(engine, message_id) is None


def test_a_scheduled_message(engine: Engine) -> None:
    """Its state depends on the time that is asked for."""
    [message_id] = _enqueue(engine, 1, delay=timedelta(hours=2))
    found = queue.message(engine, message_id)
    assert found is not None
    assert found.state(datetime.now(UTC)) == "scheduled"
    assert found.state(datetime.now(UTC) + timedelta(hours=3)) == "ready"


def test_the_messages_of_a_channel(engine: Engine) -> None:
    """Those that consumers hold come first, then the others in the order of their delivery."""
    later = _enqueue(engine, "later", delay=timedelta(hours=1))
    first, second, third = _enqueue(engine, 1, 2, 3)
    _enqueue(engine, "other", channel="other")
    urgent = _enqueue(engine, "urgent", priority=5)
    held = queue.dequeue(engine, limit=1)
    assert [one.message_id for one in held] == urgent
    found = [one.message_id for one in queue.messages(engine, channel="customer-7")]
    assert found == [*urgent, first, second, third, *later]
    assert [one.message_id for one in queue.messages(engine, channel="customer-7", limit=2)] == [*urgent, first, second]
    assert queue.messages(engine, channel="nobody") == []


async def test_the_awaited_twins(engine: Engine, async_engine: AsyncEngine) -> None:
    """They find the same."""
    [message_id] = _enqueue(engine, 1)
    assert await queue.amessage(async_engine, message_id) == queue.message(engine, message_id)
    assert await queue.amessages(async_engine, channel="customer-7") == queue.messages(engine, channel="customer-7")


@pytest.mark.parametrize("wrong", [0, "1", 2**63, True])
def test_bad_ids(engine: Engine, wrong: Any) -> None:
    """They are refused."""
    with pytest.raises(InvalidArgument, match="message_id"):
        queue.message(engine, wrong)
    with pytest.raises(InvalidArgument, match="limit"):
        queue.messages(engine, channel="a", limit=0)
    with pytest.raises(InvalidArgument, match="channel"):
        queue.messages(engine, channel="")
