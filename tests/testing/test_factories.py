"""Factories of the testing kit."""

import pytest
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue
from sqlalchemy_fairqueue.testing import all_enqueued
from sqlalchemy_fairqueue.testing.factories import ChannelFactory, DeliveryFactory, MessageFactory


def test_messages(session: Session, queue: Queue) -> None:
    """Built they are values, created they are enqueued; each has a payload of its own."""
    first, second = MessageFactory.build_batch(2, kind="parse")
    assert isinstance(first, Enqueue)
    assert (first.kind, first.payload != second.payload) == ("parse", True)
    receipts = MessageFactory.create_batch(3, session=session, queue=queue, channel="customer-7")
    assert {receipt.channel for receipt in receipts} == {"customer-7"}
    assert len({one.payload["number"] for one in all_enqueued(session, queue, channel="customer-7")}) == 3
    with pytest.raises(TypeError, match="queue"):
        MessageFactory.create(session=session)


def test_deliveries(queue: Queue) -> None:
    """They have different ids, and the fields that are given."""
    first, second = DeliveryFactory.build(queue=queue, attempt=2), DeliveryFactory.build(queue=queue, payload="a")
    assert first.message_id != second.message_id
    assert (first.attempt, second.payload, second.queue) == (2, "a", "documents")


def test_channels(session: Session, queue: Queue) -> None:
    """Created they have their policy in the database."""
    assert ChannelFactory.build(weight=3) == ChannelPolicy(weight=3)
    name = ChannelFactory.create(where=session, queue=queue, weight=5)
    other = ChannelFactory.create(where=session, queue=queue, name="customer-x")
    session.commit()
    found = {one.channel: one.policy.weight for one in queue.channels(session)}
    assert found == {name: 5, "customer-x": 1}
    assert other == "customer-x"
