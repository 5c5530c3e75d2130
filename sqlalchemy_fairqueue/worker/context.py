"""A delivery while a worker has it: what its handler may ask, and what the worker tells it."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import HandlerTimeout, LeaseLost, MessageCancelled

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values import Delivery
    from sqlalchemy_fairqueue.worker.leases import TrackedLease
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue


class Context:
    """What a handler that takes ``context`` may ask while it works.

    A handler in a thread cannot be interrupted: one that takes long should call ``check`` between its steps.

    Attributes:
        delivery: The delivery.
        cancelled: Somebody withdrew the message: stop, nothing of this attempt counts.
        stopping: The worker is asked to stop; the handler may go on, for the grace period at most.
        max_attempts: After so many the message becomes a dead letter: its own limit or the policy's, whichever is
            lower. ``delivery.max_attempts`` is its own.
    """

    __slots__ = (
        "_until",
        "cancelled",
        "claim",
        "delivery",
        "given_up",
        "max_attempts",
        "source",
        "stopping",
        "taken_at",
    )

    def __init__(self, delivery: Delivery, claim: TrackedLease, source: ServedQueue, taken_at: float) -> None:
        self.delivery = delivery
        self.cancelled = False
        self.stopping = False
        self.max_attempts = delivery.max_attempts
        # What follows is the worker's own.
        self.claim = claim
        self.source = source
        self.taken_at = taken_at
        self.given_up = False
        self._until: float | None = None

    @property
    def lost(self) -> bool:
        """Whether the lease cannot be proven alive any more: another consumer may have the message now."""
        return self.given_up or self.claim.lost

    @property
    def timed_out(self) -> bool:
        """Whether the handler has had its time."""
        return self._until is not None and monotonic() >= self._until

    def check(self) -> None:
        """Return if the handler may go on.

        Raises:
            LeaseLost: The lease cannot be proven alive.
            MessageCancelled: Somebody withdrew the message.
            HandlerTimeout: The time of this kind is over.
        """
        if self.given_up or self.claim.lost:
            lease = self.delivery.lease
            raise LeaseLost((self.delivery.message_id,), lease.id, lease.expires_at)
        if self.cancelled:
            raise MessageCancelled(self.delivery.message_id)
        if self._until is not None and self.timed_out:
            raise HandlerTimeout(self.delivery.message_id, self.delivery.kind)

    def begin(self, until: float | None) -> None:
        """The handler starts, and has time until then."""
        self._until = until

    def give_up(self) -> None:
        """The worker has given the delivery back while its handler still works on it."""
        self.given_up = True
