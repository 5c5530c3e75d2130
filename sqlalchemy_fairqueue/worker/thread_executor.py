"""Executor with threads. They share the buffer, so that no message waits behind a slow one for a thread."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.unit_of_work import guard
from sqlalchemy_fairqueue.worker.decisions import COMPLETE, RELEASE, Decision, is_serialization_failure
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.handler_calls import TRIES, arguments, begin_handling, decide_on_failure, settle_in
from sqlalchemy_fairqueue.worker.operating_system import join

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.worker.executor import SettleCallback
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.prefetch import Prefetch
    from sqlalchemy_fairqueue.worker.wake_event import FetchTrigger


class ThreadExecutor(Executor):
    """A fixed number of threads.

    They are daemons: a handler that never returns must not keep the process from ending.
    """

    def __init__(
        self,
        options: WorkerOptions,
        prefetch: Prefetch,
        trigger: FetchTrigger,
        settle: SettleCallback,
        sessions: Callable[[], Session],
    ) -> None:
        super().__init__(options, prefetch, trigger, settle)
        self._sessions = sessions
        self._changed = threading.Condition()
        self._idle = 0
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"{options.name}-handler-{number}", daemon=True)
            for number in range(1, options.concurrency + 1)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """As for Executor."""
        if self._idle:
            with self._changed:
                self._changed.notify(len(self.buffer))

    def interrupt(self, deliveries: list[HeldDelivery]) -> None:
        """Do nothing: their contexts say so already, and threads cannot be interrupted."""

    def calls_this(self) -> bool:
        """As for Executor."""
        return threading.current_thread() in self._threads

    def begin_stop(self) -> None:
        """As for Executor."""
        self._stopping.set()
        for held in list(self.running):
            held.stopping = True
        with self._changed:
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait for the handlers at work, for the grace."""
        for thread in self._threads:
            join(thread, self.grace_left)

    def _run(self) -> None:
        while not self._stopping.is_set():
            held = self.buffer.pop()
            if held is None:
                self._wait_for_work()
                continue
            self.running[held] = self._clock()
            # Asked again: from now on a stop waits for it.
            without_call = RELEASE if self._stopping.is_set() else self._without_call(held)
            self._finish(held, without_call or self._call(held))

    def _wait_for_work(self) -> None:
        with self._changed:
            self._idle += 1
            while not self.buffer and not self._stopping.is_set():
                self._changed.wait()
            self._idle -= 1

    def _call(self, held: HeldDelivery) -> Decision | None:
        try:
            handler = begin_handling(held, self._retry)
            if handler.session:
                return self._call_in_session(held, handler)
            with self._fork_guard:
                result = handler.function(held.delivery, **arguments(handler, held))
            if handler.timeout is not None:
                held.check_time()
            return COMPLETE if result is None else self._decision(held, handler, result)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is about its message
            return decide_on_failure(held, error, self._retry, self._name)

    def _call_in_session(self, held: HeldDelivery, handler: Handler) -> Decision:
        for left in reversed(range(TRIES)):
            session = self._sessions()
            try:
                guard(session, held.check)
                with self._fork_guard:
                    result = handler.function(held.delivery, **arguments(handler, held, session))
                decision = settle_in(session, held, self._decision(held, handler, result))
                session.commit()
            except Exception as error:
                if not left or held.lost or not is_serialization_failure(error):
                    raise
            else:
                return decision
            finally:
                guard(session, None)
                session.close()
        raise AssertionError  # the last try returns or raises

    def _decision(self, held: HeldDelivery, handler: Handler, result: Any) -> Decision:
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise WorkerError(
                f"the handler of kind {handler.kind!r} returned an awaitable, which nobody awaits here: "
                "nothing was done; use an AsyncWorker, or make it a plain function"
            )
        return super()._decision(held, handler, result)
