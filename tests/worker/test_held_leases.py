"""Leases of a worker, and the deliveries that it holds under them, without a database."""

import pickle
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from sqlalchemy import create_engine

from sqlalchemy_fairqueue import Lease, Queue, Worker
from sqlalchemy_fairqueue.values.messages import Delivery
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue, TrackedLease, WorkerLease

_QUEUE: Any = object()


def _tracked(seconds: float) -> TrackedLease:
    """A lease that is known to be alive for so long."""
    return TrackedLease(1, monotonic() + seconds, monotonic)


def _delivery(lease: Lease) -> Delivery:
    return Delivery(
        message_id=17,
        queue="documents",
        channel="a",
        kind="k",
        content=b"1",
        headers=None,
        attempt=1,
        max_attempts=20,
        enqueued_at=datetime.now(UTC),
        lease=lease,
        deliveries=1,
        row_id="(0,1)",
        decoded=1,
    )


def _held(tracked: TrackedLease) -> HeldDelivery:
    lease = WorkerLease(tracked.lease_id, "me", datetime.now(UTC), tracked)
    return HeldDelivery(_delivery(lease), tracked, _QUEUE, 0.0)


def test_a_lease_ends_by_itself() -> None:
    """A lease that nobody shows to be alive is lost at its deadline, and stays lost."""
    lease = _tracked(-1)
    assert lease.lost
    lease.extend(monotonic() + 100)
    assert lease.lost


def test_an_extension_prolongs_and_never_shortens() -> None:
    """The latest deadline counts."""
    lease = _tracked(100)
    deadline = lease.deadline
    lease.extend(deadline - 50)
    assert lease.deadline == deadline
    lease.extend(deadline + 50)
    assert lease.deadline == deadline + 50
    assert not lease.lost


def test_another_process_knows_nothing() -> None:
    """A delivery that is sent to another process has a lease that is not tracked there."""
    copy = pickle.loads(pickle.dumps(_held(_tracked(-1)).delivery))  # noqa: S301 - our own
    assert copy.message_id == 17
    assert not copy.lease.lost


def test_a_queue_forgets_what_is_lost_and_empty() -> None:
    """A worker has the leases that anything is held under, and no more."""
    options = Worker(create_engine("postgresql+psycopg://"), Queue("documents"))._options
    queue = ServedQueue(options.queues[0], options, {})
    first, second = (queue.track(Lease(1, "me", datetime.now(UTC)), monotonic()) for _ in range(2))
    assert first.tracked is not None
    assert first.tracked is second.tracked
    assert queue.held() == []
    queue.hold([_delivery(first)], 0.0)
    assert queue.held() == [first.tracked]
    first.tracked.lose()
    assert queue.held() == [first.tracked]
    first.tracked.held.clear()
    assert (queue.held(), queue.leases) == ([], {})
