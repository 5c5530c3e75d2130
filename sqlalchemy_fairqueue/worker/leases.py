"""What a worker can prove about its leases, by its own clock. No I/O.

The database's clock decides when a lease ends; a worker that cannot ask it must be on the safe side. So each proof of
life (a dequeue, an extension) counts from the moment **before** it was sent: whatever the network, the database or the
scheduler did to it, the lease was good for its duration from then on at least. The clock is time.monotonic, which goes
on while a process is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.values import Lease

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.worker.context import Context


class TrackedLease:
    """One lease of a worker: until when it is proven alive, and what is held under it.

    Attributes:
        lease_id: The lease.
        deadline: Proven alive until then, on time.monotonic.
        held: The deliveries that are not settled yet. Added to by the fetcher, removed from by the settler.
    """

    __slots__ = ("_lost", "deadline", "held", "lease_id")

    def __init__(self, lease_id: int, deadline: float) -> None:
        self.lease_id = lease_id
        self.deadline = deadline
        self.held: set[Context] = set()
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether it cannot be proven alive. Once somebody was told so, it stays so."""
        if not self._lost and monotonic() >= self.deadline:
            self._lost = True
        return self._lost

    def lose(self) -> None:
        """The database says that it is gone."""
        self._lost = True

    def prove(self, until: float) -> None:
        """A call has shown that it is alive; too late if somebody may have been told otherwise."""
        if not self.lost and until > self.deadline:
            self.deadline = until

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """In another process nothing is known of it."""
        return type(None), ()


@dataclass(frozen=True, slots=True)
class WorkerLease(Lease):
    """A lease whose holder knows whether it is alive, so that verbs of a lost delivery fail without asking."""

    claim: TrackedLease | None

    @property
    def lost(self) -> bool:
        """Whether the worker that took it knows that it cannot be proven alive."""
        return self.claim is not None and self.claim.lost


class LeaseRegistry:
    """The leases of one worker, by id."""

    def __init__(self) -> None:
        self._by_id: dict[int, TrackedLease] = {}

    def proven(self, lease_id: int, until: float) -> TrackedLease:
        """A dequeue says that the lease is good until then, by our clock."""
        claim = self._by_id.get(lease_id)
        if claim is None:
            claim = self._by_id[lease_id] = TrackedLease(lease_id, until)
        else:
            claim.prove(until)
        return claim

    def is_lost(self, lease_id: int | None) -> bool:
        """Whether a lease is known to be lost."""
        claim = None if lease_id is None else self._by_id.get(lease_id)
        return claim is not None and claim.lost

    def held(self) -> list[TrackedLease]:
        """Those that anything is held under; what is lost and empty is forgotten."""
        held = []
        for claim in list(self._by_id.values()):
            if claim.held:
                held.append(claim)
            elif claim.lost:
                self._by_id.pop(claim.lease_id, None)
        return held
