"""What a worker can prove about its leases."""

import pickle
from datetime import UTC, datetime
from time import monotonic

import pytest

from sqlalchemy_fairqueue import LeaseLost, MessageCancelled
from sqlalchemy_fairqueue.values import Delivery
from sqlalchemy_fairqueue.worker.context import Context
from sqlalchemy_fairqueue.worker.leases import LeaseRegistry, TrackedLease, WorkerLease


def _delivery(claim: TrackedLease) -> Delivery:
    lease = WorkerLease(claim.lease_id, "me", datetime.now(UTC), claim)
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


def test_a_claim_ends_by_itself() -> None:
    """A lease that nobody proves alive is lost at its deadline, and stays lost."""
    claim = TrackedLease(1, monotonic() - 1)
    assert claim.lost
    claim.prove(monotonic() + 100)
    assert claim.lost


def test_a_proof_prolongs_and_never_shortens() -> None:
    """The latest proof counts."""
    claim = TrackedLease(1, monotonic() + 100)
    deadline = claim.deadline
    claim.prove(deadline - 50)
    assert claim.deadline == deadline
    claim.prove(deadline + 50)
    assert claim.deadline == deadline + 50
    assert not claim.lost


def test_the_deliveries_know() -> None:
    """A delivery's lease says that it is lost as soon as its claim is, and check raises."""
    claim = TrackedLease(1, monotonic() + 100)
    delivery = _delivery(claim)
    context = Context(delivery, claim, None, 0.0)  # type: ignore[arg-type]  # no source is needed
    context.check()
    before = delivery.lease.lost
    claim.lose()
    assert [before, delivery.lease.lost, context.lost] == [False, True, True]
    with pytest.raises(LeaseLost, match="message 17"):
        context.check()


def test_cancelled_and_given_up() -> None:
    """Check says that a message was withdrawn, or given back."""
    claim = TrackedLease(1, monotonic() + 100)
    context = Context(_delivery(claim), claim, None, 0.0)  # type: ignore[arg-type]  # no source is needed
    context.cancelled = True
    with pytest.raises(MessageCancelled, match="17"):
        context.check()
    context.give_up()
    assert context.lost
    assert not claim.lost
    with pytest.raises(LeaseLost):
        context.check()


def test_another_process_knows_nothing() -> None:
    """A delivery that is sent to another process claims nothing there."""
    copy = pickle.loads(pickle.dumps(_delivery(TrackedLease(1, 0.0))))  # noqa: S301 - our own
    assert copy.message_id == 17
    assert not copy.lease.lost


def test_claims_forget_what_is_lost_and_empty() -> None:
    """A worker's claims hold what is in its hands and no more."""
    claims = LeaseRegistry()
    claim = claims.proven(1, monotonic() + 100)
    assert claims.proven(1, monotonic() + 200) is claim
    assert claims.held() == []
    context = Context(_delivery(claim), claim, None, 0.0)  # type: ignore[arg-type]  # no source is needed
    claim.held.add(context)
    assert claims.held() == [claim]
    claim.lose()
    assert claims.is_lost(1)
    assert claims.held() == [claim]
    claim.held.clear()
    assert claims.held() == []
    assert not claims.is_lost(1)
