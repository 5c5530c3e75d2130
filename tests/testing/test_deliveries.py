"""Deliveries and contexts for tests of handlers, made by make_delivery and make_context."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from sqlalchemy_fairqueue import Context, Delivery, Queue, Retry
from sqlalchemy_fairqueue.errors import HandlerTimeout, InvalidArgument, LeaseLost, MessageCancelled, PayloadError
from sqlalchemy_fairqueue.reports import GroupCounts
from sqlalchemy_fairqueue.testing import make_context, make_delivery

_QUEUE = Queue("documents", max_attempts=7)


def _handle(delivery: Delivery, context: Context) -> Retry | None:
    for page in delivery.payload["pages"]:
        context.check()
        if page == "busy" and not context.stopping:
            return Retry(error=f"page {page} of {delivery.channel}")
    return None


def test_a_handler_is_called_as_a_worker_calls_it() -> None:
    """It reads what it asks for, and says what it wants."""
    delivery = make_delivery(_QUEUE, {"pages": ("a", "busy")}, channel="customer-7", attempt=3)
    wanted = _handle(delivery, make_context(delivery))
    assert wanted is not None
    assert wanted.error == "page busy of customer-7"
    assert _handle(delivery, make_context(delivery, stopping=True)) is None


def test_a_delivery_is_like_one_of_the_queue() -> None:
    """The payload has been through the codec, and what was not given is the queue's."""
    before = datetime.now(UTC)
    delivery = make_delivery(_QUEUE, (1, 2), headers={"trace": ("a",)})
    assert delivery.payload == [1, 2]
    assert (delivery.queue, delivery.kind, delivery.max_attempts, delivery.attempt) == ("documents", "default", 7, 1)
    assert delivery.headers == {"trace": ["a"]}
    assert before <= delivery.enqueued_at < delivery.lease.expires_at
    assert make_delivery(_QUEUE, None, max_attempts=2, kind="parse").max_attempts == 2


def test_what_an_enqueue_refuses_is_refused() -> None:
    """A test cannot pass with a message that could never be sent."""
    with pytest.raises(PayloadError, match=r"\$\.at"):
        make_delivery(_QUEUE, {"at": object()})
    with pytest.raises(InvalidArgument, match="channel"):
        make_delivery(_QUEUE, 1, channel="")
    with pytest.raises(InvalidArgument, match="headers"):
        make_delivery(_QUEUE, 1, headers={"a": object()})
    wrong: Any = {"total": 3}
    with pytest.raises(InvalidArgument, match="group_id is 'first'"):
        make_delivery(_QUEUE, 1, group="first")
    with pytest.raises(InvalidArgument, match=r"after_group is {'total': 3}; give GroupCounts\("):
        make_delivery(_QUEUE, 1, after_group=wrong)


def test_a_delivery_of_a_group() -> None:
    """A handler finds the group that the test names, beside its own headers, and the counts of one that it follows."""
    group, counts = uuid4(), GroupCounts(uuid4(), total=3, done=2, failed=1, cancelled=0)
    member = make_context(make_delivery(_QUEUE, 1, headers={"trace": "a"}, group=group), queue=_QUEUE)
    assert member.delivery.headers == {"trace": "a", "group": str(group)}
    assert member.group is not None
    assert member.group.id == group
    assert make_context(make_delivery(_QUEUE, 1, after_group=counts)).after_group == counts
    assert make_delivery(_QUEUE, 1, group=str(group)).headers == {"group": str(group)}


def test_what_a_worker_tells_its_handler() -> None:
    """Each thing that can end a handler early."""
    delivery = make_delivery(_QUEUE, 1)
    context = make_context(delivery)
    context.check()
    assert [context.stopping, context.lost, context.timed_out, context.cancelled] == [False] * 4
    for name, error in (("lost", LeaseLost), ("cancelled", MessageCancelled), ("timed_out", HandlerTimeout)):
        told: Any = {name: True}
        with pytest.raises(error):
            make_context(delivery, **told).check()
    context.cancelled = True
    with pytest.raises(MessageCancelled):
        context.check()
