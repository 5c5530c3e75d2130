"""Listening connections for those who wait for results: one a process and engine, while anybody waits.

It is apart from the listening connection of workers, because a process that only enqueues runs no worker. It stays open
for a while after the last waiter, because a process that has waited once usually waits again soon.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy import event

from sqlalchemy_fairqueue.worker.notifications import Listening
from sqlalchemy_fairqueue.worker.timings import Clock, Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine

# Seconds that the connection stays without a waiter.
_LINGER = 30.0


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a listening connection."""

    engine: Engine | AsyncEngine
    clock: Clock = monotonic
    timings: Timings = field(default_factory=Timings)


class EngineWatch:
    """The notifications of one engine's database about messages that have ended."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._listening: Listening | None = None
        self._timer: threading.Timer | None = None

    @property
    def is_listening(self) -> bool:
        """Whether notifications are sent and arrive just now, as far as is known."""
        listening = self._listening
        return listening is not None and listening.is_listening

    def join(self, engine: Engine | AsyncEngine, message_id: int, wake: Callable[[], None]) -> None:
        """Call *wake*, in the listener's thread, at each notification that may be about a message."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._wakes.setdefault(str(message_id), []).append(wake)
            if self._listening is None:
                self._listening = Listening(_Options(engine))
                self._listening.join(self)

    def leave(self, message_id: int, wake: Callable[[], None]) -> None:
        """Call it no more. Some time after the last one the connection ends."""
        with self._lock:
            wakes = self._wakes.get(str(message_id), [])
            if wake in wakes:
                wakes.remove(wake)
            if not wakes:
                self._wakes.pop(str(message_id), None)
            if not self._wakes and self._listening is not None:
                self._timer = threading.Timer(_LINGER, self._end_if_idle)
                self._timer.daemon = True
                self._timer.start()

    def notified(self, topics: dict[str, set[str]] | None) -> None:
        """Notifications came, each of which named a message or a lease; None: some may have been missed."""
        with self._lock:
            if topics is None:
                named = set(self._wakes)
            else:
                named = {name for names in topics.values() for name in names if name in self._wakes}
            wakes = [wake for name in named for wake in self._wakes[name]]
        for wake in wakes:
            wake()

    def close(self) -> None:
        """End the connection. Those who wait poll."""
        with self._lock:
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.leave(self)

    def _end_if_idle(self) -> None:
        with self._lock:
            if self._wakes:
                return
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.leave(self)


_watches: WeakKeyDictionary[Engine, EngineWatch] = WeakKeyDictionary()
_making = threading.Lock()


def watch_of(engine: Engine) -> EngineWatch:
    """The watch over the database of an engine. A forked child has its own."""
    with _making:
        watch = _watches.get(engine)
        if watch is None or watch.process != os.getpid():
            watch = _watches[engine] = EngineWatch()
            event.listen(engine, "engine_disposed", lambda _: watch.close())
    return watch
