"""Wake events: one thread of a worker waits for each, and others set it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.timings import Clock


class WakeEvent:
    """An event that is cheap to set again and again while its thread has not come back to wait.

    The waiting thread takes the event, does all there is to do, and waits again: an event that was set in between ends
    its wait at once. It is one lock, held while the event is not set: a threading.Event is three, and some Python
    around them.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread, now or when it waits next. Any thread may call it, also while another one does."""
        if self._unset.locked():
            # Another thread may have set it since.
            with contextlib.suppress(RuntimeError):
                self._unset.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the event, and take it. Returns whether it was set. Only one thread may wait."""
        return self._unset.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


class FetchTrigger:
    """All that lets the fetcher of one worker begin a round before the time that it has chosen.

    It is made before the other parts, which call it in their threads; only the fetcher waits for it.

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
