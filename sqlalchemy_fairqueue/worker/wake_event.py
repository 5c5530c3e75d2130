"""An event that one thread waits for and others set."""

from __future__ import annotations

import contextlib
import threading


class WakeEvent:
    """An event that is cheap to set again and again while its thread has not come back to wait.

    The waiting thread takes the event, looks at everything, and waits again: an event that was set in between ends its
    wait at once. It is one lock, held while the event is not set: a threading.Event is three, and some Python around
    them.
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
