"""Prefetch of a worker: how many messages it takes ahead of their handlers, and in which order these begin. No I/O.

Handlers must not wait for the database between two short messages. But a message in the buffer has used its tenant's
turn and a slot of its limit while nobody works on it, and messages behind it wait too. So the worker estimates from
recent handler times how many messages its handlers finish in the time of a few dequeues, and at most in a tenth of a
second. The buffer holds no more than these. If handlers take longer, the worker takes a message only when one is free.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.timings import Timings

# Of the newest value in an average.
_WEIGHT = 0.1
# Channels that the buffer remembers beyond those that can matter.
_SPARE = 1000


class Prefetch:
    """Exponentially weighted averages of what handlers (over all kinds) and dequeues took lately.

    Args:
        concurrency: How many handlers run at a time.
        timings: The worker's.
        most: Most messages in the buffer.
    """

    __slots__ = ("_ahead", "_concurrency", "_most", "_seconds", "_trip", "_trips")

    def __init__(self, concurrency: int, timings: Timings, most: int) -> None:
        self._concurrency = concurrency
        self._most = most
        self._ahead = timings.ahead
        self._trips = timings.trips
        # Nothing is known of the first messages: each is taken when a handler is free for it.
        self._seconds = 2 * self._ahead
        self._trip: float | None = None

    def observe(self, seconds: float) -> None:
        """A handler took so long. Called by any thread: a lost update does no harm."""
        self._seconds += _WEIGHT * (seconds - self._seconds)

    def fetched(self, seconds: float) -> None:
        """A dequeue took so long, there and back. Called by the one thread that dequeues."""
        trip = seconds if self._trip is None else self._trip
        self._trip = trip + _WEIGHT * (seconds - trip)

    def ahead(self, busy: float) -> int:
        """The number of messages that may wait in the buffer.

        Args:
            busy: For how long all handlers have been busy: what takes long has not ended, so no average knows it yet.
        """
        seconds = max(self._seconds, busy)
        if seconds >= self._ahead:
            return 0
        covered = min(self._ahead, self._trips * (self._trip or 0.0))
        return min(self._most, int(self._concurrency * covered / max(seconds, 1e-6)))

    def room(self, free: int, buffered: int, busy: float) -> int:
        """The number of messages to take now; zero while it is not worth a call.

        Args:
            free: Handlers that could begin.
            buffered: Messages in the buffer.
            busy: As for :meth:`ahead`.
        """
        ahead = self.ahead(busy)
        room = free + ahead - buffered
        # Half a buffer at once: one call for many messages. But no free handler ever waits for that.
        worth = 1 if buffered < max(free, 1) else max(1, ahead // 2)
        return room if room >= worth else 0


def shares(room: int, queues: int) -> list[int]:
    """Split room among queues, the first ones getting what does not divide."""
    return [room // queues + (number < room % queues) for number in range(queues)]


class Buffer:
    """Deliveries that wait for a handler, in turns by channel. One thread adds, any thread takes.

    A dequeue gives messages in turns, but a tenant that comes with a later dequeue would wait behind all that the
    buffer holds of another. So the buffer takes turns too. Each message gets a virtual time: now or, if that is later,
    one after the last message of its channel; the earliest begins. Virtual time goes on by one while as many messages
    begin as wait, so that new channels, however many come, do not keep coming before those who wait. A channel's
    messages stay in their order.

    Source: start-time fair queueing (Goyal, Vin, Cheng 1996), with messages of one size.

    Attributes:
        filled_at: When the last ones were taken from their queue, by the worker's clock.
    """

    __slots__ = ("_last", "_now", "_number", "_waiting", "filled_at")

    def __init__(self) -> None:
        self.filled_at: float = 0.0
        # A heap: one call of heapq is one step for other threads, for it compares nothing but numbers.
        self._waiting: list[tuple[float, int, HeldDelivery]] = []
        # The virtual time of each channel's last message, where that may still matter.
        self._last: dict[tuple[ServedQueue, str], float] = {}
        self._now = 0.0
        self._number = 0

    def __len__(self) -> int:
        """The number of deliveries that wait."""
        return len(self._waiting)

    def size(self) -> int:
        """The bytes of the contents of the deliveries that wait."""
        # A copy, which is one step for other threads.
        return sum(len(one.delivery.content) for _, _, held in self._waiting.copy() for one in held.batch)

    def extend(self, deliveries: Iterable[HeldDelivery]) -> None:
        """Add deliveries, in the order in which the dequeue gave them."""
        if not self._waiting:
            self._last.clear()
        elif len(self._last) > 2 * len(self._waiting) + _SPARE:
            self._last = {channel: at for channel, at in self._last.items() if at + 1 > self._now}
        for held in deliveries:
            channel = (held.queue, held.delivery.channel)
            at = self._last[channel] = max(self._now, self._last.get(channel, -1.0) + 1)
            self._number += 1
            self.filled_at = held.taken_at
            heappush(self._waiting, (at, self._number, held))

    def pop(self) -> HeldDelivery | None:
        """Take the next one out; None: there is none."""
        try:
            at, _, held = heappop(self._waiting)
        except IndexError:
            return None
        self._now = max(at, self._now + 1 / (len(self._waiting) + 1))
        return held

    def next_taken_at(self) -> float | None:
        """The time at which the next one was taken from its queue, by the worker's clock; None: there is none."""
        try:
            return self._waiting[0][2].taken_at
        except IndexError:
            return None
