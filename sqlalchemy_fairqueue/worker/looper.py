"""Looper of a thread: it calls duties again and again, each at its interval, and goes on after any failure."""

from __future__ import annotations

import contextlib
import math
import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.worker.operating_system import join

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
    from sqlalchemy_fairqueue.worker.timings import Backoff


class WakeEvent:
    """An event that is cheap to set repeatedly while its thread is busy; the thread's next wait then ends at once.

    The event is one lock, held while it is not set; a threading.Event has three locks, with some Python around them.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread, now or when it waits next. Several threads may call it."""
        if self._unset.locked():
            # Another thread may have set the event since.
            with contextlib.suppress(RuntimeError):
                self._unset.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the event and take it. Return whether it was set. Only one thread may wait."""
        return self._unset.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


@dataclass(slots=True, eq=False)
class Duty:
    """A function to be called repeatedly. Times are in seconds.

    Attributes:
        step: What it does, for the log: ``"extend its leases"``.
        function: It may return the time from its beginning to its next call, if that is shorter than *interval*.
        interval: Time between the beginnings of two calls.
        spread: Bounds of a random factor of each interval, so that workers started together drift apart.
        first: The first call comes at a random moment within this time.
        is_urgent: Whether it is also called between other duties, as soon as it is due.
    """

    step: str
    function: Callable[[], float | None]
    interval: float
    spread: tuple[float, float] = (1.0, 1.0)
    first: float = 0.0
    is_urgent: bool = False
    due_at: float = field(default=0.0, init=False)
    backoff: Backoff = field(init=False)


class Looper:
    """A thread of a worker that calls duties until it is stopped. A duty that raises is called again after its backoff.

    Args:
        word: The end of the thread's name.
        duties: Duties that are due together are called in this order, and urgent ones in between whenever they are due.
        event: When it is set, all duties are due.
        cap: Longest seconds between a failure and the next call.
        last: Called in the thread at its end.
    """

    def __init__(
        self,
        word: str,
        duties: Sequence[Duty],
        options: WorkerOptions,
        stats: WorkerStats,
        *,
        event: WakeEvent | None = None,
        cap: float = 5.0,
        last: Callable[[], None] = lambda: None,
    ) -> None:
        self.thread = threading.Thread(target=self.run, name=f"{options.name}-{word}", daemon=True)
        self._stopping = False
        self._clock = options.clock
        self._duties = duties
        self._urgent = [duty for duty in duties if duty.is_urgent]
        self._stats = stats
        self._event = WakeEvent() if event is None else event
        self._last = last
        # When the next duty is due. Infinite during a call, so that a time that is noted meanwhile always counts.
        self._next_at = math.inf
        now = self._clock()
        for duty in duties:
            duty.backoff = options.backoff(duty.step, cap)
            duty.due_at = now + duty.first * random.random()  # noqa: S311 - spreads the load

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._event.set()

    def join(self, left: Callable[[], float]) -> None:
        join(self.thread, left)

    def wake_by(self, at: float) -> None:
        """Make all duties due now if none is due by *at*. Any thread may call it."""
        if at < self._next_at:
            self._event.set()

    def is_over(self) -> bool:
        return self._stopping

    def run(self) -> None:
        while not self.is_over():
            for duty in self._duties:
                for one in (*self._urgent, duty):
                    if one.due_at <= self._clock() and not self.is_over():
                        self._call(one)
            self._next_at = min(duty.due_at for duty in self._duties)
            wait = self._next_at - self._clock()
            is_woken = wait > 0 and not self.is_over() and self._event.wait(wait)
            self._next_at = math.inf
            if is_woken:
                for duty in self._duties:
                    duty.due_at = 0.0
        self._last()

    def _call(self, duty: Duty) -> None:
        began = self._clock()
        try:
            sooner = duty.function()
            duty.backoff.succeeded()
            interval = duty.interval * random.uniform(*duty.spread)  # noqa: S311 - spreads the load
            duty.due_at = began + (interval if sooner is None else min(sooner, interval))
        except BaseException as error:  # noqa: BLE001 - after any failure the other duties go on
            self._stats.failed()
            duty.due_at = self._clock() + duty.backoff.failed(error)
