"""Deliveries and contexts for tests of handlers that need no database."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy_fairqueue.codecs import decoded
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values.messages import (
    AFTER_GROUP_HEADER,
    GROUP_HEADER,
    Delivery,
    Enqueue,
    GroupCounts,
    Lease,
    checked_group_id,
)
from sqlalchemy_fairqueue.worker import Context
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, TrackedLease

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue

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
    ordering_key: str | None = None,
    group: UUID | str | None = None,
    after_group: GroupCounts | None = None,
) -> Delivery:
    """A delivery as a worker would give it to a handler, without a message in the database.

    Its payload is encoded and decoded by the queue's codec: with JSON a tuple becomes a list, as in production.

    Args:
        queue: The queue of the message.
        payload: The payload.
        channel: As in ``enqueue``.
        kind: As in ``enqueue``.
        headers: As in ``enqueue``.
        message_id: The message's id.
        attempt: The number of the attempt, from 1.
        max_attempts: The message's limit. Default: the queue's.
        enqueued_at: Default: now.
        ordering_key: As in ``enqueue``.
        group: The id of the group that the message is a member of, for ``context.group``. What the handler adds to it
            is recorded on its session; a COMMIT of it raises LeaseLost, as the verbs do.
        after_group: The group that the message follows, for ``context.after_group``.

    Returns:
        A delivery under a lease of an hour. ``queue.complete`` and the other verbs raise LeaseLost for it: the message
        does not exist.

    Raises:
        InvalidArgument, PayloadError: As ``enqueue`` does.

    Example:
        >>> make_delivery(queue, {"file": "a.pdf"}, kind="parse", attempt=2).attempt
        2
    """
    if after_group is not None and not isinstance(after_group, GroupCounts):
        raise InvalidArgument(f"after_group is {after_group!r:.80}; give GroupCounts(id=..., total=..., done=..., ...)")
    of_groups: dict[str, Any] = {} if group is None else {GROUP_HEADER: str(checked_group_id(group))}
    if after_group is not None:
        of_groups[AFTER_GROUP_HEADER] = {**asdict(after_group), "id": str(after_group.id)}
    headers = {**(headers or {}), **of_groups} if of_groups else headers
    message = Enqueue(
        channel=channel,
        payload=payload,
        kind=kind,
        headers=headers,
        max_attempts=max_attempts,
        ordering_key=ordering_key,
    )
    [sent] = queue._enqueues([message], sends=False)  # noqa: SLF001 - it refuses the arguments that enqueue refuses
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
        ordering_key=message.ordering_key,
    )


def make_context(
    delivery: Delivery,
    *,
    stopping: bool = False,
    cancelled: bool = False,
    lost: bool = False,
    timed_out: bool = False,
    queue: Queue | None = None,
) -> Context:
    """The context that a worker would give to the handler of a delivery.

    ``context.stopping`` and ``context.cancelled`` can also be set later.

    Args:
        delivery: The delivery.
        stopping: Whether the worker is stopping.
        cancelled: Whether the message was cancelled.
        lost: Whether the lease is lost.
        timed_out: Whether the handler's timeout has passed.
        queue: The queue, to let the handler add members to the group of the delivery.

    Example:
        >>> make_context(make_delivery(queue, 1), cancelled=True).cancelled
        True
    """
    served = None if queue is None else SimpleNamespace(queue=queue)
    lease = TrackedLease(delivery.lease.id, math.inf, monotonic)
    held = HeldDelivery(delivery, lease, cast("ServedQueue", served), monotonic())
    held.stopping = stopping
    held.cancelled = cancelled
    held.given_up = lost
    if timed_out:
        held.limit_time(timedelta())
    return Context(held)
