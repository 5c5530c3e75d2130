"""Threads that call handlers. They share the buffer, so that no message waits behind a slow one for a thread."""

from __future__ import annotations

import inspect
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.unit_of_work import guard
from sqlalchemy_fairqueue.worker.daemon_threads import join
from sqlalchemy_fairqueue.worker.decisions import COMPLETE, RELEASE, Decision, is_serialization_failure, of_return
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.handler_calls import TRIES, begin, check_time, commit_with, extras, failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.handling import Handler
    from sqlalchemy_fairqueue.values import RetryPolicy
    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.prefetch import Prefetch


class ThreadExecutor(Executor):
    """A fixed number of threads.

    They are daemons: a handler that never returns must not keep the process from ending.
    """

    def __init__(
        self, concurrency: int, pace: Prefetch, retry: RetryPolicy, sessions: Callable[[], Session], name: str
    ) -> None:
        super().__init__(concurrency, pace)
        self._retry = retry
        self._sessions = sessions
        self._name = name
        self._changed = threading.Condition()
        self._idle = 0
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-handler-{number}", daemon=True)
            for number in range(1, concurrency + 1)
        ]

    def launch(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def start(self) -> None:
        """There is work in the buffer."""
        if self._idle:
            with self._changed:
                self._changed.notify(len(self.buffer))

    def tell(self, contexts: list[Context]) -> None:
        """These deliveries are lost or cancelled: their contexts say so already, and threads cannot be interrupted."""

    def is_mine(self) -> bool:
        """Whether one of its handlers asks."""
        return threading.current_thread() in self._threads

    def stop(self) -> None:
        """Wait for the handlers at work, as long as there is time."""
        for thread in self._threads:
            join(thread, self.left)

    def end(self) -> None:
        """Begin no more, and tell the handlers at work."""
        self._stopping.set()
        for context in list(self.running):
            context.stopping = True
        with self._changed:
            self._changed.notify_all()

    def _work(self) -> None:
        while not self._stopping.is_set():
            context = self.buffer.pop()
            if context is None:
                self._wait()
                continue
            self.running[context] = monotonic()
            # Asked again: from now on a stop waits for it.
            untried = RELEASE if self._stopping.is_set() else self.untried(context)
            self.leave(context, untried or self._call(context))

    def _wait(self) -> None:
        with self._changed:
            self._idle += 1
            while not self.buffer and not self._stopping.is_set():
                self._changed.wait()
            self._idle -= 1

    def _call(self, context: Context) -> Decision | None:
        try:
            handler = begin(context, self._retry)
            if handler.session:
                return self._call_in_session(context, handler)
            with self.one_process:
                result = handler.function(context.delivery, **extras(handler, context))
            if handler.timeout is not None:
                check_time(context)
            return COMPLETE if result is None else self._returned(context, handler, result)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is about its message
            return failed(context, error, self._retry, self._name)

    def _call_in_session(self, context: Context, handler: Handler) -> Decision:
        for left in reversed(range(TRIES)):
            session = self._sessions()
            try:
                guard(session, context.check)
                with self.one_process:
                    result = handler.function(context.delivery, **extras(handler, context, session))
                decision = commit_with(session, context, self._returned(context, handler, result))
                session.commit()
            except Exception as error:
                if not left or context.lost or not is_serialization_failure(error):
                    raise
            else:
                return decision
            finally:
                guard(session, None)
                session.close()
        raise AssertionError  # the last try returns or raises

    def _returned(self, context: Context, handler: Handler, result: Any) -> Decision:
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise WorkerError(
                f"the handler of kind {handler.kind!r} returned an awaitable, which nobody awaits here: "
                "nothing was done; use an AsyncWorker, or make it a plain function"
            )
        return of_return(result, context.delivery, context.source.policy(handler, self._retry))
