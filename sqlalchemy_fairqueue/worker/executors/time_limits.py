"""Time limits of handlers: one thread that notices when the time of a handler is over.

Nothing can interrupt a Python thread, and a blocked event loop runs no timer. So the handler cannot be asked, and the
heartbeat is too late, since it waits for the database.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import said
from sqlalchemy_fairqueue.worker.logs import log
from sqlalchemy_fairqueue.worker.operating_system import join
from sqlalchemy_fairqueue.worker.wake_event import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.worker.options import WorkerOptions

# Seconds after a check that failed.
_AGAIN = 1.0
# Seconds that a thread can wait at once, on any system.
_LONGEST = 3600.0


class TimeLimits:
    """The thread that looks for handlers whose time is over.

    It keeps no list of handlers: most return long before their time is over. It looks through those at work when the
    first of them may be due, which is once in the time of a limit.

    Args:
        options: The worker's.
        check: Deals with the handlers whose time is over. Returns when the next one may be, by the worker's clock.
    """

    def __init__(self, options: WorkerOptions, check: Callable[[], float]) -> None:
        self._name = options.name
        self._clock = options.clock
        self._check = check
        self._event = WakeEvent()
        self._stopping = False
        # It waits until then. Infinite while it checks: it may miss a time that is noted meanwhile.
        self._next = math.inf
        self._thread = threading.Thread(target=self._run, name=f"{options.name}-limits", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Stop the thread, and wait for it for so long."""
        self._stopping = True
        self._event.set()
        until = self._clock() + seconds
        join(self._thread, lambda: until - self._clock())

    def note(self, over_at: float) -> None:
        """The time of a handler is over then. Any thread may call it, after the check can find the handler."""
        if over_at < self._next:
            self._event.set()

    def _run(self) -> None:
        while not self._stopping:
            self._next = math.inf
            try:
                over_at = self._check()
            except BaseException as error:  # noqa: BLE001 - after any failure the next handler must be noticed
                log.error(
                    "worker %s could not check the time of its handlers: %s: %s",
                    self._name,
                    type(error).__name__,
                    said(error),
                    extra={"worker": self._name},
                )
                over_at = self._clock() + _AGAIN
            self._next = over_at
            self._event.wait(min(over_at - self._clock(), _LONGEST))
