"""A bell: what one thread sleeps on and others ring."""

from __future__ import annotations

import contextlib
import threading


class WakeEvent:
    """A bell that is cheap to ring again and again while nobody has come back to listen.

    The listener takes the ring, looks at everything, and waits again: a ring in between ends its wait at once. It is
    one lock, held while there is no ring to take: a threading.Event is three, and some Python around them.
    """

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake the listener, now or when it waits next. Any thread may call it, also while another one does."""
        if self._silence.locked():
            # Somebody else may have rung since.
            with contextlib.suppress(RuntimeError):
                self._silence.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a ring, and take it. Returns whether there was one. Only one thread may wait."""
        return self._silence.acquire(timeout=-1 if seconds is None else max(0.0, seconds))
