"""How many messages a worker may hold. No I/O.

Handlers must not wait for the database between two short messages, and a message that waits in a worker's buffer has
used its tenant's turn, and a slot of its limit, without being worked on; whoever comes after it waits for it too. So a
buffer holds what is worked off, by what handlers took lately, while the database answers a few times, and within a
tenth of a second; where handlers take longer, nothing is taken before a slot is free.
"""

from __future__ import annotations

AHEAD = 0.1
"""Seconds of work that may wait in the buffer, at most."""
TRIPS = 3.0
"""Dequeues, by what they took lately, for which there may be work in the buffer; half of it when one begins."""
MOST = 500
"""Most messages in the buffer."""
STALE = 1.0
"""Seconds after which a message that still waits in the buffer is given back."""
_WEIGHT = 0.1


class Prefetch:
    """What handlers and dequeues took lately: exponentially weighted averages, that of handlers over all kinds.

    Args:
        concurrency: How many handlers run at a time.
        most: Most messages in the buffer.
    """

    __slots__ = ("_concurrency", "_most", "_seconds", "_trip")

    def __init__(self, concurrency: int, most: int = MOST) -> None:
        self._concurrency = concurrency
        self._most = most
        # Nothing is known of the first messages: each is taken when there is a slot for it.
        self._seconds = 2 * AHEAD
        self._trip: float | None = None

    def observe(self, seconds: float) -> None:
        """A handler took so long. Called by any thread: a lost update does no harm."""
        self._seconds += _WEIGHT * (seconds - self._seconds)

    def fetched(self, seconds: float) -> None:
        """A dequeue took so long, there and back. Called by the one thread that dequeues."""
        trip = seconds if self._trip is None else self._trip
        self._trip = trip + _WEIGHT * (seconds - trip)

    def ahead(self, busy: float) -> int:
        """How many may wait in the buffer.

        Args:
            busy: For how long all slots have been busy: what takes long has not ended yet, so it is not in the average.
        """
        seconds = max(self._seconds, busy)
        if seconds >= AHEAD:
            return 0
        covered = min(AHEAD, TRIPS * (self._trip or 0.0))
        return min(self._most, int(self._concurrency * covered / max(seconds, 1e-6)))

    def room(self, free: int, buffered: int, busy: float) -> int:
        """How many to take now; zero when it is not worth a call yet.

        Args:
            free: Slots without work.
            buffered: Messages that wait for one.
            busy: As for :meth:`ahead`.
        """
        ahead = self.ahead(busy)
        room = free + ahead - buffered
        # Half a buffer at once: one call for many messages. But no slot ever waits for that.
        worth = 1 if buffered < max(free, 1) else max(1, ahead // 2)
        return room if room >= worth else 0


def shares(room: int, queues: int) -> list[int]:
    """Split room among queues, the first ones getting what does not divide."""
    return [room // queues + (number < room % queues) for number in range(queues)]
