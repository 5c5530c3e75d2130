"""A database that is away, or slow, or restarting: how long to wait, and what to write in the log.

No I/O but logging.
"""

from __future__ import annotations

import random
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import said

if TYPE_CHECKING:
    from logging import LoggerAdapter
    from typing import Any

_FIRST = 0.05
_AGAIN = 60.0


class Backoff:
    """The failures in a row of one part of a worker.

    The first is logged as a warning, then one a minute, and its end: a night's outage must not fill a disk.

    Args:
        log: Where to.
        what: What fails, for the log: ``"dequeue"``.
        worker: The worker's name.
        cap: The longest wait in seconds.
    """

    def __init__(self, log: LoggerAdapter[Any], what: str, worker: str, cap: float = 5.0) -> None:
        self._log = log
        self._what = what
        self._worker = worker
        self._cap = cap
        self._failures = 0
        self._since = 0.0
        self._logged = 0.0

    def failed(self, error: BaseException) -> float:
        """Note a failure; how many seconds to wait before the next attempt."""
        now = monotonic()
        if not self._failures:
            self._since = now
        self._failures += 1
        if self._failures == 1 or now - self._logged >= _AGAIN:
            self._logged = now
            self._log.warning(
                "worker %s cannot %s, trying again (failure %d, %.0f s): %s: %s",
                self._worker,
                self._what,
                self._failures,
                now - self._since,
                type(error).__name__,
                said(error),
                extra={"worker": self._worker, "step": self._what, "failures": self._failures},
            )
        doubled: float = _FIRST * 2.0 ** min(self._failures - 1, 16)
        return min(self._cap, doubled) * (0.5 + random.random() / 2)  # noqa: S311 - spreads the load

    def over(self) -> None:
        """It worked."""
        if self._failures:
            self._log.warning(
                "worker %s can %s again, after %.1f s and %d failures",
                self._worker,
                self._what,
                monotonic() - self._since,
                self._failures,
                extra={"worker": self._worker, "step": self._what, "failures": self._failures},
            )
            self._failures = 0
