"""Backoff of one part of a worker: how long it waits after failures in a row, and what it logs about them.

No I/O but logging.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import said
from sqlalchemy_fairqueue.worker.logs import log

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.worker.timings import Clock, Timings


class Backoff:
    """Failures in a row of one step, which is tried again after ever longer waits.

    It logs the first failure, then one a minute, and the recovery, as warnings: a night without a database must not
    fill a disk.

    Args:
        step: What fails, for the log: ``"dequeue from 'documents'"``.
        worker: The worker's name, for the log.
        clock: The worker's.
        timings: The worker's.
        cap: The longest wait in seconds.
    """

    def __init__(self, step: str, worker: str, clock: Clock, timings: Timings, cap: float = 5.0) -> None:
        self._step = step
        self._worker = worker
        self._clock = clock
        self._timings = timings
        self._cap = cap
        self._failures = 0
        self._since = 0.0
        self._logged_at = 0.0

    def failed(self, error: BaseException) -> float:
        """Note a failure; how many seconds to wait before the next attempt."""
        now = self._clock()
        if not self._failures:
            self._since = now
        self._failures += 1
        if self._failures == 1 or now - self._logged_at >= self._timings.backoff_log:
            self._logged_at = now
            log.warning(
                "worker %s cannot %s, trying again (failure %d, %.0f s): %s: %s",
                self._worker,
                self._step,
                self._failures,
                now - self._since,
                type(error).__name__,
                said(error),
                extra={"worker": self._worker, "step": self._step, "failures": self._failures},
            )
        doubled: float = self._timings.backoff_first * 2.0 ** min(self._failures - 1, 16)
        return min(self._cap, doubled) * (0.5 + random.random() / 2)  # noqa: S311 - spreads the load

    def succeeded(self) -> None:
        """The step worked."""
        if self._failures:
            log.warning(
                "worker %s can %s again, after %.1f s and %d failures",
                self._worker,
                self._step,
                self._clock() - self._since,
                self._failures,
                extra={"worker": self._worker, "step": self._step, "failures": self._failures},
            )
            self._failures = 0
