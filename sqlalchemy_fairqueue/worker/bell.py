"""A bell: what one thread sleeps on and others ring."""

from __future__ import annotations

import threading


class Bell:
    """An event that is cheap to ring again and again while nobody has come back to listen.

    The listener takes the ring, looks at everything, and waits again: a ring in between ends its wait at once.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """Wake the listener, now or when it waits next."""
        if not self._event.is_set():
            self._event.set()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a ring, and take it. Returns whether there was one."""
        rung = self._event.wait(seconds)
        if rung:
            self._event.clear()
        return rung
