"""Executors: they call the handlers of one worker, in threads or as tasks of an event loop.

This is their one contract, and all that both share: the buffer, the deliveries at work, and how a delivery leaves them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.worker.decisions import COMPLETE, RELEASE, Decision, of_return
from sqlalchemy_fairqueue.worker.operating_system import ForkGuard
from sqlalchemy_fairqueue.worker.prefetch import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.prefetch import Prefetch
    from sqlalchemy_fairqueue.worker.wake_event import FetchTrigger

    SettleCallback = Callable[[HeldDelivery, Decision | None], None]


class Executor(ABC):
    """Calls the handlers of one worker.

    The runtime starts and stops it; the fetcher asks for ``free``, ``busy`` and ``is_closed``, and calls ``begin``; the
    heartbeat calls ``interrupt``.

    Args:
        options: The worker's.
        prefetch: Told how long handlers take.
        trigger: Wakes the fetcher when the buffer runs low.
        settle: Called with each delivery whose handler finished, and the decision on it; None: the delivery is not this
            worker's any more.

    Attributes:
        buffer: Deliveries that wait for a handler. The fetcher adds to it.
        running: Deliveries at work, and since when. The thread that takes one out settles it.
    """

    def __init__(
        self, options: WorkerOptions, prefetch: Prefetch, trigger: FetchTrigger, settle: SettleCallback
    ) -> None:
        self.buffer = Buffer()
        self.running: dict[HeldDelivery, float] = {}
        self._name = options.name
        self._concurrency = options.concurrency
        self._retry = options.retry
        self._clock = options.clock
        self._timings = options.timings
        self._prefetch = prefetch
        self._trigger = trigger
        self._settle = settle
        self._fork_guard = ForkGuard()
        # Until when a stop waits for handlers.
        self._grace_until = math.inf

    @abstractmethod
    def start(self) -> None:
        """Be ready to call handlers."""

    @abstractmethod
    def begin_stop(self) -> None:
        """Begin no more deliveries, and tell the handlers at work."""

    def shorten_grace(self, until: float) -> None:
        """Let a stop wait no longer than *until*, also one that is under way."""
        self._grace_until = min(self._grace_until, until)

    def grace_left(self) -> float:
        """The seconds that a stop still waits for handlers."""
        return max(0.0, self._grace_until - self._clock())

    def give_up(self) -> list[HeldDelivery]:
        """Leave the handlers at work behind; their deliveries, which the caller must settle."""
        given_up = [held for held in list(self.running) if self.running.pop(held, None) is not None]
        for held in given_up:
            held.given_up = True
        return given_up

    @abstractmethod
    def calls_this(self) -> bool:
        """Whether the caller is one of its handlers."""

    @abstractmethod
    def begin(self) -> None:
        """Begin deliveries of the buffer: some were added."""

    def free(self) -> int:
        """The number of handlers that could begin at once."""
        return self._concurrency - len(self.running)

    def busy(self, now: float) -> float:
        """For how many seconds no handler has been free; zero if one is."""
        started = list(self.running.values())
        return now - max(started) if len(started) >= self._concurrency else 0.0

    def is_closed(self) -> bool:
        """Whether it cannot call handlers any more, though the worker was not stopped."""
        return False

    @abstractmethod
    def interrupt(self, deliveries: list[HeldDelivery]) -> None:
        """Interrupt the handlers of these deliveries, which are lost or cancelled, if that is possible."""

    @staticmethod
    def _without_call(held: HeldDelivery) -> Decision | None:
        """The decision on a delivery whose handler should not be called; None: it should."""
        return RELEASE if held.lost else COMPLETE if held.cancelled else None

    def _decision(self, held: HeldDelivery, handler: Handler, result: object) -> Decision:
        """The decision that a returned value asks for."""
        return of_return(result, held.delivery, held.queue.policy(handler, self._retry))

    def _finish(self, held: HeldDelivery, decision: Decision | None) -> None:
        """A handler has finished; nothing happens if its delivery was given up meanwhile."""
        started = self.running.pop(held, None)
        if started is None:
            return
        self._settle(held, decision)
        self._prefetch.observe(self._clock() - started)
        if len(self.buffer) <= self._trigger.refill_at:
            self._trigger.set()
