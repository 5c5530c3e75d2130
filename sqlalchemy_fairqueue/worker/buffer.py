"""What a worker holds and nobody works on yet, in the order in which handlers begin. No I/O.

A dequeue gives messages in turns, but a tenant that comes later, with a later dequeue, would wait behind all that the
buffer holds of another. So turns are taken in the buffer too: each message gets a time, now or, if that is later, one
after the last message of its channel, and the earliest begins. Time goes on by one while as many begin as wait, so that
new channels, however many come, do not keep coming before those who wait. A channel's messages stay in their order.

ServedQueue: start-time fair queueing (Goyal, Vin, Cheng 1996), with messages of one size.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue


# Channels that are remembered beyond those that can matter.
_SPARE = 1000


class Buffer:
    """Deliveries in turns by channel. One thread adds, any thread takes.

    Attributes:
        filled_at: When the last ones were taken from their queue, on time.monotonic.
    """

    __slots__ = ("_last", "_now", "_number", "_waiting", "filled_at")

    def __init__(self) -> None:
        self.filled_at = 0.0
        # A heap: one call of heapq is one step for other threads, for it compares nothing but numbers.
        self._waiting: list[tuple[float, int, Context]] = []
        # The time of each channel's last message, where that may still matter.
        self._last: dict[tuple[ServedQueue, str], float] = {}
        self._now = 0.0
        self._number = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def extend(self, contexts: Iterable[Context]) -> None:
        """Add deliveries, as they were given."""
        if not self._waiting:
            self._last.clear()
        elif len(self._last) > 2 * len(self._waiting) + _SPARE:
            self._last = {channel: at for channel, at in self._last.items() if at + 1 > self._now}
        for context in contexts:
            channel = (context.source, context.delivery.channel)
            at = self._last[channel] = max(self._now, self._last.get(channel, -1.0) + 1)
            self._number += 1
            self.filled_at = context.taken_at
            heappush(self._waiting, (at, self._number, context))

    def pop(self) -> Context | None:
        """Take the next one out; None: there is none."""
        try:
            at, _, context = heappop(self._waiting)
        except IndexError:
            return None
        self._now = max(at, self._now + 1 / (len(self._waiting) + 1))
        return context

    def next_taken_at(self) -> float | None:
        """When the next one was taken from its queue, on time.monotonic; None: there is none."""
        try:
            return self._waiting[0][2].taken_at
        except IndexError:
            return None
