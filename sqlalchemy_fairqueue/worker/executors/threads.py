"""Executor with threads. They share the buffer, so that no message waits behind a slow one for a thread."""

from __future__ import annotations

import math
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.worker.decisions import COMPLETE, RELEASE, Decision
from sqlalchemy_fairqueue.worker.executors.base import Executor
from sqlalchemy_fairqueue.worker.operating_system import join

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.worker.executors.base import SettleCallback
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.prefetch import Prefetch
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
    from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger


class ThreadExecutor(Executor):
    """A fixed number of threads.

    They are daemons: a handler that never returns must not keep the process from ending.
    """

    def __init__(  # noqa: PLR0917 - as for Executor
        self,
        options: WorkerOptions,
        stats: WorkerStats,
        sessions: Callable[[], Session],
        prefetch: Prefetch,
        trigger: FetchTrigger,
        settle: SettleCallback,
    ) -> None:
        super().__init__(options, stats, sessions, prefetch, trigger, settle)
        self._changed = threading.Condition()
        self._idle = 0
        self._stopping = threading.Event()
        # Until when a stop waits for handlers that hang.
        self._leave_at = math.inf
        self._threads = [
            threading.Thread(target=self._run, name=f"{options.name}-handler-{number}", daemon=True)
            for number in range(1, options.concurrency + 1)
        ]

    def start(self) -> None:
        """Start the threads."""
        super().start()
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """As for Executor."""
        if self._idle:
            with self._changed:
                self._changed.notify(len(self.buffer))

    def calls_this(self) -> bool:
        """As for Executor."""
        return threading.current_thread() in self._threads

    def begin_stop(self) -> None:
        """As for Executor."""
        self._stopping.set()
        for held in list(self.running):
            held.stopping = True
        self._children.tell_stopping()
        with self._changed:
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait for the handlers at work, for the grace. What hangs gets a moment."""
        for thread in self._threads:
            join(thread, self._left)

    def _left(self) -> float:
        if self.running:
            self._leave_at = math.inf
            return self.grace_left()
        now = self._clock()
        self._leave_at = min(self._leave_at, now + self._timings.cleanup)
        return min(self.grace_left(), self._leave_at - now)

    def _run(self) -> None:
        while not self._stopping.is_set():
            held = self.buffer.pop()
            if held is None:
                self._wait_for_work()
                continue
            self.occupied[held] = self.running[held] = self._clock()
            # Asked again: from now on a stop waits for it.
            without_call = RELEASE if self._stopping.is_set() else self._without_call(held)
            # In a context of its own: what a handler sets in a context variable is not left for the next message.
            self._finish(held, without_call or copy_context().run(self._call, held))

    def _wait_for_work(self) -> None:
        with self._changed:
            self._idle += 1
            while not self.buffer and not self._stopping.is_set():
                self._changed.wait()
            self._idle -= 1

    def _call(self, held: HeldDelivery) -> Decision | None:
        try:
            handler = self._begin_handling(held)
            if handler.isolated:
                return self._call_in_child(held, handler)
            self._limit_time(held, handler)
            if handler.session:
                return self._call_in_sync_session(held, handler)
            result = self._call_plain(held, handler)
            if handler.timeout is not None:
                held.check_time()
            if result is None and handler.batch is None and not held.outcomes:
                return COMPLETE
            return self._decision(held, handler, result)
        except BaseException as error:  # noqa: BLE001 - every exception of a handler is about its message
            return self._failed(held, error)
