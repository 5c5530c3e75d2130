"""Child processes of a worker, for handlers that were declared with ``isolation="process"``.

Each runs one handler at a time and then waits for the next. It is spawned, not forked: a fork of a process with threads
may find locks that nobody releases. It can be killed at any time, with all processes that its handler has started, and
it dies with the worker (``child_main``).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from multiprocessing import resource_tracker, util
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import HandlerCrashed, WorkerError
from sqlalchemy_fairqueue.worker.decisions import RemoteError
from sqlalchemy_fairqueue.worker.executors import child_main

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

_SPAWN = multiprocessing.get_context("spawn")
# For the worker to obey. A child installs its own handlers before it lets them through.
_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class ChildProcesses:
    """The child processes of one worker. As many run as handlers that need one, and they stay until the worker stops.

    Args:
        options: The worker's.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._name = options.name
        self._clock = options.clock
        self._timings = options.timings
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: dict[HeldDelivery, _Child] = {}
        # Multiprocessing calls it before it waits for children, at the end of any process.
        self._at_exit: util.Finalize[Any] | None = None
        self._is_closed = False

    def __contains__(self, held: HeldDelivery) -> bool:
        """Whether a child works on a delivery."""
        return held in self._busy

    def call(self, held: HeldDelivery, handler: Handler) -> Any:
        """Run a handler in a child, and wait for it in this thread.

        Its time begins when the child has imported it.

        Returns:
            The outcome that the handler returned, if any; else the value, if its queue keeps results.

        Raises:
            HandlerCrashed: The child ended.
            HandlerTimeout, LeaseLost, MessageCancelled: The reason for which it was killed.
            WorkerError: No child could be made ready.
            BaseException: What the handler raised: an outcome, or a RemoteError.
        """
        deliveries = [one.delivery for one in held.batch]
        is_batch = handler.batch is not None
        request = pickle.dumps(
            (handler.function, deliveries, is_batch, handler.context, held.max_attempts, handler.timeout)
        )
        child = self._begun(held, request)
        try:
            held.limit_time(handler.timeout)
            answer = pickle.loads(self._receive(child, held))  # noqa: S301 - our own child's
            held.check_time()
        except (EOFError, OSError):
            code = child.reap(self._timings.cleanup)
            held.check()
            raise HandlerCrashed(held.delivery.message_id, held.delivery.kind, code) from None
        except BaseException:
            child.kill()
            raise
        finally:
            self._release(child, held)
        for delivery, settled in zip(deliveries, answer.settled, strict=False):
            delivery.settled.extend(settled)
        held.cost = answer.cost
        held.outcomes = answer.outcomes
        return _outcome(answer)

    def kill(self, held: HeldDelivery) -> None:
        """Kill the child that works on a delivery, if one does. The thread that waits for it says why."""
        with self._lock:
            child = self._busy.get(held)
            if child is not None:
                child.kill()

    def tell_stopping(self) -> None:
        """Tell the handlers at work that the worker stops."""
        with self._lock:
            children = list(self._busy.values())
        for child in children:
            child.tell_stopping()

    def close(self) -> None:
        """End all children. A child that works is killed, another one may finish what its handlers began."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy.values())
        for child in busy:
            child.kill()
        for child in idle:
            child.end()
        until = self._clock() + self._timings.cleanup
        for child in busy:
            # The thread that waits for it reaps it.
            child.join(until - self._clock())
        for child in idle:
            child.reap(until - self._clock())
        if self._at_exit is not None:
            self._at_exit.cancel()

    def _kill_all(self) -> None:
        """At the end of a process whose worker was not stopped."""
        with self._lock:
            self._is_closed = True
            children = [*self._idle, *self._busy.values()]
        for child in children:
            child.kill()

    def _begun(self, held: HeldDelivery, request: bytes) -> _Child:
        """A child that has begun to handle a delivery."""
        while True:
            child, is_fresh = self._take(held)
            try:
                until = self._clock() + self._timings.child_start
                if is_fresh:
                    self._receive(child, held, until)
                child.send_call(request)
                self._receive(child, held, until)
            except (EOFError, OSError):
                # Of one that has waited for long, somebody else may have made an end.
                code = child.reap(self._timings.cleanup)
                self._release(child, held)
                held.check()
                if is_fresh:
                    raise WorkerError(
                        f"the child process for kind {held.delivery.kind!r} ended with status {code} before it could "
                        "begin; see its stderr, and start workers under if __name__ == '__main__':"
                    ) from None
            except BaseException:
                child.kill()
                self._release(child, held)
                raise
            else:
                return child

    def _take(self, held: HeldDelivery) -> tuple[_Child, bool]:
        """A child for a delivery, and whether it is fresh.

        Raises:
            LeaseLost: No more are to be started.
        """
        with self._lock:
            if self._is_closed:
                held.give_up()
                held.check()
            if self._idle:
                child = self._busy[held] = self._idle.pop()
                return child, False
            if self._at_exit is None:
                self._at_exit = util.Finalize(None, self._kill_all, exitpriority=0)
        child = _Child(f"{self._name}-child")
        with self._lock:
            self._busy[held] = child
            if self._is_closed:
                # Its first check says so.
                held.give_up()
        return child, True

    def _release(self, child: _Child, held: HeldDelivery) -> None:
        """A child does not work on a delivery any more. It waits for the next, or is gone when this returns."""
        with self._lock:
            self._busy.pop(held, None)
            if not child.is_killed and not self._is_closed:
                self._idle.append(child)
                return
        child.kill()
        child.reap(self._timings.cleanup)

    def _receive(self, child: _Child, held: HeldDelivery, until: float | None = None) -> bytes:
        """The next answer of a child.

        Raises:
            EOFError, OSError: It has ended.
            HandlerTimeout, LeaseLost, MessageCancelled: Its handler may not go on.
            WorkerError: It did not answer until then.
        """
        while True:
            held.check()
            if held.stopping:
                child.tell_stopping()
            wait = self._timings.lease_check
            for at in (until, held.time_over_at, held.lease.deadline):
                if at is not None:
                    wait = min(wait, max(0.0, at - self._clock()))
            if child.connection.poll(wait):
                return child.connection.recv_bytes()
            if until is not None and self._clock() >= until:
                raise WorkerError(
                    f"the child process for kind {held.delivery.kind!r} was not ready after "
                    f"{self._timings.child_start:g} s; look at what its modules do when they are imported"
                )


class _Child:
    """One child process, as the worker sees it.

    Attributes:
        connection: Its answers.
        is_killed: Whether it is not to be used again.
    """

    def __init__(self, name: str) -> None:
        self.is_killed = False
        self._is_reaped = False
        self._lock = threading.Lock()
        self._is_told = False
        self.connection, theirs = _SPAWN.Pipe()
        # No daemon: its handlers may use multiprocessing themselves.
        self._process = _SPAWN.Process(target=child_main.main, args=(theirs,), name=name, daemon=False)
        # It lets signals through while it starts.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def send_call(self, request: bytes) -> None:
        """Let it handle a delivery."""
        with self._lock:
            self.connection.send_bytes(child_main.CALL + request)

    def tell_stopping(self) -> None:
        """Tell it that the worker stops, once."""
        with self._lock:
            if not self._is_told:
                self._is_told = True
                # Its end is noticed by who waits for it.
                with contextlib.suppress(OSError):
                    self.connection.send_bytes(child_main.STOPPING)

    def end(self) -> None:
        """Ask it to end."""
        with self._lock, contextlib.suppress(OSError):
            self.connection.send_bytes(child_main.END)

    def kill(self) -> None:
        """Kill it, and what its handler has started."""
        self.is_killed = True
        pid = self._process.pid
        # The number of one that was reaped may be another's by now.
        if pid is not None and not self._is_reaped:
            # It leads a group of its own, unless it is just starting.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self._process.kill()

    def join(self, seconds: float) -> None:
        """Wait for its end, for so long."""
        self._process.join(max(0.0, seconds))

    def reap(self, seconds: float) -> int | None:
        """Wait for its end, and kill it if that does not come; its exit code, None if it has none yet."""
        self.join(seconds)
        code: int | None = self._process.exitcode
        self.kill()
        if code is None:
            self.join(seconds)
        self._is_reaped = True
        self.connection.close()
        return code


def _outcome(answer: child_main.Answer) -> Any:
    """Return or raise here what a handler returned or raised in a child."""
    outcome = answer.outcome
    if answer.own is not None:
        # Middleware may ask for the class. What cannot be made here means the same without it.
        with contextlib.suppress(Exception):
            outcome = pickle.loads(answer.own)  # noqa: S301 - our own child's
    if not answer.is_raised:
        return answer.value if outcome is None else outcome
    cause = None
    if answer.text is not None:
        cause = RemoteError(answer.summary, answer.text, answer.classes, circumstance=answer.circumstance)
    if outcome is None:
        raise cause or WorkerError("a child process told of an exception without a word")
    raise outcome from cause
