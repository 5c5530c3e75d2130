"""Child processes of a worker, for handlers with ``isolation="process"``; each runs one handler at a time.

A child is spawned, not forked, since a fork of a process with threads may inherit locks that nobody releases. The
worker can kill it at any time, with all processes that its handler has started. When the pipe ends because the worker
was killed, the child kills itself and all processes of its handlers. On Linux the kernel kills them even if a handler
never lets another Python thread run.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from multiprocessing import parent_process, resource_tracker, util
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sqlalchemy_fairqueue.errors import HandlerCrashed, MessageCancelled, WorkerError
from sqlalchemy_fairqueue.queue.contexts import Context, call_of
from sqlalchemy_fairqueue.queue.results import UnkeptValue
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.values.outcomes import Bury, Release, Retry
from sqlalchemy_fairqueue.worker import handling
from sqlalchemy_fairqueue.worker.handling import RemoteError
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue, TrackedLease, held_batch
from sqlalchemy_fairqueue.worker.threads import ForkGuard

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.values.messages import Delivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

CALL, STOPPING, END = b"c", b"s", b"e"
"""The first byte of a message to a child: it brings a call, says that the worker is stopping, or ends the child."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A pickled value, and a substitute that the worker uses if it cannot unpickle the value.
_Sent = tuple[bytes, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a handler ended in its child.

    Attributes:
        ended: The outcome that the handler returned or raised, or the MessageCancelled that it raised; for any other
            exception a RemoteError. A returned value that is no outcome is sent only if the queue keeps results.
    """

    ended: _Sent
    is_raised: bool = False
    cause: RemoteError | None = None
    settled: list[list[str]] = field(default_factory=list)
    outcomes: dict[int, _Sent] = field(default_factory=dict)
    cost: int | None = None


def main(connection: Connection[Any, Any]) -> None:
    # In a new process group, so that only the worker gets a Ctrl-C of its terminal, and a kill ends the whole group.
    os.setsid()
    # A supervisor sends signals to all processes: only the worker obeys, and gives handlers grace. SIG_IGN is not used,
    # since programs that a handler starts would inherit it.
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    _die_with_parent()
    listener = _Listener(connection)
    threading.Thread(target=listener.run, name="fairqueue-listener", daemon=True).start()
    connection.send_bytes(b"ready")
    while (call := listener.calls.get()) is not None:
        # Each call has a new context, so that context variables of a handler do not leak into the next message.
        connection.send_bytes(copy_context().run(_handle, listener, connection, call))


def _handle(listener: _Listener, connection: Connection[Any, Any], call: bytes) -> bytes:
    """Handle the batch of a pickled *call*, and return the pickled Answer."""
    deliveries: list[Delivery] = []
    held: HeldDelivery | None = None
    try:
        try:
            # Unpickling imports the module of the handler.
            handler, deliveries, max_attempts = pickle.loads(call)  # noqa: S301 - the worker's
        finally:
            connection.send_bytes(b"begun")
        # This lease never ends, since the worker watches the real lease and kills this process when that is lost.
        lease = TrackedLease(deliveries[0].lease.id, math.inf, monotonic)
        held = held_batch(deliveries, lease, cast("ServedQueue", None), monotonic())
        held.max_attempts = max_attempts
        listener.held = held
        held.stopping = listener.is_stopping
        held.limit_time(handler.timeout)
        with ForkGuard():
            result = call_of(handler, (), Context(held))()
        outcome = handling.returned_outcome(result)
        outcomes = {message_id: _sent(one) for message_id, one in held.outcomes.items()}
        kept = result if any(one.keeps_result for one in deliveries) else None
        answer = Answer(outcomes=outcomes, ended=_sent(kept if outcome is None else outcome))
    except BaseException as error:  # noqa: BLE001 - the worker decides what becomes of the message
        answer = _raised(error)
    finally:
        listener.held = None
    settled, cost = [one.settled for one in deliveries], None if held is None else held.cost
    return pickle.dumps(replace(answer, settled=settled, cost=cost))


def _sent(value: Any) -> _Sent:
    pickled, problem = b"", "the worker cannot unpickle it"
    try:
        pickled = pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - objects of the handler's may raise anything
        problem = said(error)
    match value:
        case Retry():
            return pickled, Retry(delay=value.delay, error=value.error)
        case Release():
            return pickled, Release(delay=value.delay)
        case Bury():
            return pickled, Bury(value.reason)
        case MessageCancelled():
            return pickled, MessageCancelled(value.message_id)
    # A result that cannot be sent is not kept. The attempt has not failed, since the handler has done its work.
    return pickled, UnkeptValue(f"a {type(value).__name__} cannot be sent from its child process: {problem}")


def _received(sent: _Sent) -> Any:
    try:
        return pickle.loads(sent[0])  # noqa: S301 - our own child's
    except Exception:  # noqa: BLE001 - the classes of the handler's modules may be unknown here, or raise anything
        return sent[1]


def _raised(error: BaseException) -> Answer:
    if isinstance(error, (Retry, Release, Bury, MessageCancelled)):
        try:
            text = handling.cause_of(error)
            cause = None if text is None else RemoteError(said(error), text)
            return Answer(is_raised=True, ended=_sent(error), cause=cause)
        except Exception as problem:  # noqa: BLE001 - classes of the application's may raise anything
            error = problem
    summary, circumstance = f"{type(error).__name__}: {said(error)}", handling.is_circumstance(error)
    text, classes = handling.text_of(error), handling.classes_of(error)
    return Answer(is_raised=True, ended=_sent(RemoteError(summary, text, classes, circumstance)))


class _Listener:
    """The thread that receives the worker's messages. It puts pickled calls into ``calls``; None ends the child."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self.calls: SimpleQueue[bytes | None] = SimpleQueue()
        self.held: HeldDelivery | None = None
        self.is_stopping = False

    def run(self) -> None:
        while True:
            try:
                message = self._connection.recv_bytes()
            except (EOFError, OSError):
                _die()
            word, rest = message[:1], message[1:]
            if word == END:
                self.calls.put(None)
            elif word == STOPPING:
                # Set first, so that handlers that begin from now on see it.
                self.is_stopping = True
                held = self.held
                if held is not None:
                    held.stopping = True
            else:
                self.calls.put(rest)


def _die_with_parent() -> None:
    """Let the kernel kill this process and its group when the worker dies, on Linux."""
    parent = parent_process()
    if parent is None or sys.platform != "linux":
        return
    import fcntl  # noqa: PLC0415 - not on every system

    pipe = parent.sentinel
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    # The worker may have died before the kernel was told.
    if not parent.is_alive():
        _die()


def _die() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    # Never reached; for type checkers.
    os._exit(1)


_SPAWN = multiprocessing.get_context("spawn")


class ChildProcesses:
    """The child processes of one worker. Each runs one handler at a time, and waits for the next one until the stop."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: dict[HeldDelivery, _Child] = {}
        # Closes the children at the end of a process whose worker was not stopped, before multiprocessing waits for
        # them.
        self._at_exit: util.Finalize[Any] | None = None
        self._is_closed = False

    def __contains__(self, held: HeldDelivery) -> bool:
        return held in self._busy

    def call(self, held: HeldDelivery, handler: Handler) -> Any:
        """Run a handler in a child and wait. The timeout begins when the child has imported the handler's module.

        Returns:
            The outcome or value that the handler returned. A value is None if the message's queue keeps no results.

        Raises:
            HandlerCrashed: The child ended while the handler ran.
            HandlerTimeout, LeaseLost, MessageCancelled: Why the child was killed.
            WorkerError: No child could be started, a new one ended before it could begin, or one was not ready in time.
            BaseException: What the handler raised: an outcome, or a RemoteError.
        """
        deliveries = [one.delivery for one in held.batch]
        request = pickle.dumps((replace(handler, retry=None, schema=None), deliveries, held.max_attempts))
        answer: Answer | None = None
        while answer is None:
            child, is_fresh = self._take(held)
            has_begun = False
            try:
                until = self._options.clock() + self._options.timings.child_start
                if is_fresh:
                    self._receive(child, held, until)
                child.connection.send_bytes(CALL + request)
                self._receive(child, held, until)
                has_begun = True
                held.limit_time(handler.timeout)
                answer = pickle.loads(self._receive(child, held))  # noqa: S301 - our own child's
                held.check_time()
            except (EOFError, OSError):
                # If the child was idle for long, somebody else may have killed it; then another child begins.
                code = child.reap(self._options.timings.cleanup)
                held.check()
                if has_begun:
                    raise HandlerCrashed(held.delivery.message_id, held.delivery.kind, code) from None
                if is_fresh:
                    raise WorkerError(
                        f"the child process for kind {held.delivery.kind!r} ended with status {code} before it could "
                        "begin; see its stderr, and start workers under if __name__ == '__main__':"
                    ) from None
            except BaseException:
                child.kill()
                raise
            finally:
                self._release(child, held)
        for delivery, settled in zip(deliveries, answer.settled, strict=False):
            delivery.settled.extend(settled)
        held.cost = answer.cost
        held.outcomes = {message_id: _received(one) for message_id, one in answer.outcomes.items()}
        ended = _received(answer.ended)
        if answer.is_raised:
            raise ended from answer.cause
        return ended

    def kill(self, held: HeldDelivery) -> None:
        """Kill the child that works on a delivery, if any; :meth:`call` then raises the reason in its own thread."""
        with self._lock:
            child = self._busy.get(held)
            if child is not None:
                child.kill()

    def close(self) -> None:
        """End all children: kill busy ones, and give idle ones a second to finish what their handlers left running."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy.values())
        for child in busy:
            child.kill()
        for child in idle:
            with suppress(OSError):
                child.connection.send_bytes(END)
        until = self._options.clock() + self._options.timings.cleanup
        for child in busy:
            # The thread that waits for this child reaps it.
            child.process.join(until - self._options.clock())
        for child in idle:
            child.reap(until - self._options.clock())
        if self._at_exit is not None:
            self._at_exit.cancel()

    def _take(self, held: HeldDelivery) -> tuple[_Child, bool]:
        with self._lock:
            idle = self._idle.pop() if self._idle else None
            if self._at_exit is None:
                self._at_exit = util.Finalize(None, self.close, exitpriority=0)
        try:
            child = _Child(f"{self._options.name}-child") if idle is None else idle
        except OSError as error:
            raise WorkerError(
                f"no child process could be started for kind {held.delivery.kind!r}: {error}; look whether the machine "
                "has processes, files and memory left"
            ) from error
        with self._lock:
            self._busy[held] = child
            if self._is_closed:
                # So the handler's first check raises LeaseLost.
                held.give_up()
        return child, idle is None

    def _release(self, child: _Child, held: HeldDelivery) -> None:
        with self._lock:
            self._busy.pop(held, None)
            if not child.is_killed and not self._is_closed:
                self._idle.append(child)
                return
        child.kill()
        child.reap(self._options.timings.cleanup)

    def _receive(self, child: _Child, held: HeldDelivery, until: float | None = None) -> bytes:
        """Return a child's next message. Raise EOFError or OSError if the child has ended.

        While waiting, raise what ``held.check`` raises. If no message has come at the time *until* of the worker's
        clock, raise WorkerError. None means no limit.
        """
        while True:
            held.check()
            if held.stopping:
                with suppress(OSError):
                    child.connection.send_bytes(STOPPING)
            if child.connection.poll(self._options.timings.lease_check):
                return child.connection.recv_bytes()
            if until is not None and self._options.clock() >= until:
                raise WorkerError(
                    f"the child process for kind {held.delivery.kind!r} was not ready after "
                    f"{self._options.timings.child_start:g} s; look at what its modules do when they are imported"
                )


class _Child:
    """A child process, as the worker sees it; once killed, it must not be used again."""

    def __init__(self, name: str) -> None:
        self.is_killed = False
        self._is_reaped = False
        self.connection, theirs = _SPAWN.Pipe()
        # Not a daemon, since handlers may use multiprocessing themselves.
        self.process = _SPAWN.Process(target=main, args=(theirs,), name=name, daemon=False)
        # multiprocessing's resource tracker is started before signals are blocked, since its start unblocks them.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def kill(self) -> None:
        self.is_killed = True
        pid = self.process.pid
        # A child that was reaped is not killed, since its pid may belong to another process.
        if pid is not None and not self._is_reaped:
            # The child leads a process group of its own, unless it is just starting.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self.process.kill()

    def reap(self, seconds: float) -> int | None:
        """Wait *seconds* for the child to end, then kill its group. Return its exit code; None if it had not ended."""
        self.process.join(seconds)
        code: int | None = self.process.exitcode
        self.kill()
        if code is None:
            self.process.join(seconds)
        self._is_reaped = True
        self.connection.close()
        return code
