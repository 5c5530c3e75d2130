"""Deliveries and contexts for tests of handlers, without a database.

A handler that uses its queue's database is tested with one: see docs/workers.md.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy_fairqueue.codecs import decoded
from sqlalchemy_fairqueue.values import Delivery, Enqueue, Lease
from sqlalchemy_fairqueue.worker import Context
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, TrackedLease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue

__all__ = ["make_context", "make_delivery"]

_LEASE = timedelta(hours=1)


def make_delivery(
    queue: Queue,
    payload: Any,
    *,
    channel: str = "test",
    kind: str = "default",
    headers: Mapping[str, Any] | None = None,
    message_id: int = 1,
    attempt: int = 1,
    max_attempts: int | None = None,
    enqueued_at: datetime | None = None,
) -> Delivery:
    """A delivery as a worker would give it to a handler; in the database there is none.

    Its payload has been through the queue's codec: with JSON a tuple comes as a list, as in production.

    Args:
        queue: The queue that it is of.
        payload: What is enqueued.
        channel: As in ``enqueue``.
        kind: As in ``enqueue``.
        headers: As in ``enqueue``.
        message_id: The id.
        attempt: Which attempt it is, from 1.
        max_attempts: The message's limit. Default: the queue's.
        enqueued_at: Default: now.

    Returns:
        A delivery under a lease of an hour. To settle it by ``queue.complete`` and the like raises LeaseLost: nobody
        holds such a message.

    Raises:
        InvalidArgument, PayloadError: What ``enqueue`` would refuse.
    """
    message = Enqueue(channel=channel, payload=payload, kind=kind, headers=headers, max_attempts=max_attempts)
    sent = queue._operation(message)  # noqa: SLF001 - what is refused here is what an enqueue refuses
    now = datetime.now(UTC)
    return Delivery(
        message_id=message_id,
        queue=queue.name,
        channel=message.channel,
        kind=message.kind,
        content=sent.content,
        headers=None if sent.headers is None else json.loads(sent.headers),
        attempt=attempt,
        max_attempts=sent.max_attempts,
        enqueued_at=enqueued_at or now,
        lease=Lease(1, "test", now + _LEASE),
        deliveries=attempt,
        row_id="(0,1)",
        decoded=decoded(queue.codec, sent.content),
    )


def make_context(
    delivery: Delivery,
    *,
    stopping: bool = False,
    cancelled: bool = False,
    lost: bool = False,
    timed_out: bool = False,
) -> Context:
    """The context of a delivery that a handler works on.

    ``context.stopping`` and ``context.cancelled`` may be set later, too.

    Args:
        delivery: The delivery.
        stopping: Whether the worker is asked to stop.
        cancelled: Whether the message was withdrawn.
        lost: Whether the lease is lost.
        timed_out: Whether the handler has had its time.
    """
    # Only workers need the queue of a delivery.
    lease = TrackedLease(delivery.lease.id, math.inf, monotonic)
    held = HeldDelivery(delivery, lease, cast("ServedQueue", None), monotonic())
    held.stopping = stopping
    held.cancelled = cancelled
    held.given_up = lost
    if timed_out:
        held.limit_time(0.0)
    return Context(held)
