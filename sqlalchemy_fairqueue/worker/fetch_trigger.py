"""The trigger of the fetcher: all that lets it look for messages before the time that it has chosen.

It is made before the other parts, which call it in their threads; only the fetcher waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.worker.wake_event import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.timings import Clock


class FetchTrigger:
    """Wakes the fetcher of one worker.

    Attributes:
        refill_at: The executor wakes the fetcher when no more than so many deliveries are left in its buffer; -1: it
            does not. The fetcher sets it.
        is_backlogged: Whether the fetcher waits for deliveries to be settled. The fetcher sets it.
    """

    __slots__ = ("_clock", "_event", "is_backlogged", "refill_at")

    def __init__(self, clock: Clock) -> None:
        self.refill_at = -1
        self.is_backlogged = False
        self._clock = clock
        self._event = WakeEvent()

    def set(self) -> None:
        """Something changed: a handler is free, a queue may have work, or the worker stops."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until something changes. For the fetcher."""
        self._event.wait(seconds)

    def settled(self, queues: Iterable[ServedQueue]) -> None:
        """Deliveries were settled, which made room in these queues. A fetcher that is about to poll them waits on."""
        now = self._clock()
        earlier = [queue.polls.poll_now(now) for queue in queues]
        if any(earlier) or self.is_backlogged:
            self._event.set()

    def notified(self, named: Iterable[ServedQueue], others: Iterable[ServedQueue]) -> None:
        """Notifications came: for some queues they named this worker, for others another consumer."""
        now = self._clock()
        earlier = [queue.polls.poll_now(now) for queue in named]
        earlier += [queue.polls.poll_later(now) for queue in others]
        if any(earlier):
            self._event.set()
