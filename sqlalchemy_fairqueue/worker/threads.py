"""Threads that call a worker's duties until they are stopped, and the handling of SIGTERM, SIGINT and forks."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import random
import signal
import sys
import threading
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.worker.connection import begun_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType, TracebackType

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.timings import Backoff, Clock


T = TypeVar("T")
# Seconds after which a thread that waits for another one wakes up. Python's handler of a signal runs only when the main
# thread wakes up. The signal itself does not wake the main thread if another thread receives the signal, or if the
# signal comes right before the wait.
_CHECK = 0.1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# The functions that hear the signals: one for each worker that was started with handle_signals.
_hearing: list[Callable[[int], None]] = []
# The program's handlers that _dispatch has replaced, by signal.
_replaced: dict[signal.Signals, Any] = {}
_masks = threading.local()


class WakeEvent:
    """An event that is cheap to set repeatedly while its thread is busy; the thread's next wait then ends at once."""

    def __init__(self) -> None:
        # The only lock, held while the event is not set. A threading.Event has three, with some Python around them.
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread, now or when it waits next. Several threads may call it."""
        if self._unset.locked():
            # Another thread may have set it since.
            with suppress(RuntimeError):
                self._unset.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the event, and reset it. Return whether it was set. Only one thread may wait."""
        return self._unset.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


@dataclass(slots=True, eq=False)
class Duty:
    """A function to be called repeatedly. Times are in seconds.

    Attributes:
        step: What it does, for the log: ``"extend its leases"``.
        function: It may return the time from the beginning of this call to the next one, if shorter than *interval*.
        interval: Time between the beginnings of two calls.
        spread: Bounds of a random factor of each interval, so that workers started together drift apart.
        first: The first call comes at a random moment within this time.
        is_urgent: Whether it is also called between other duties, as soon as it is due.
    """

    step: str
    function: Callable[[], float | None]
    interval: float
    spread: tuple[float, float] = (1.0, 1.0)
    first: float = 0.0
    is_urgent: bool = False
    due_at: float = field(default=0.0, init=False)
    backoff: Backoff = field(init=False)


@dataclass(eq=False, repr=False)
class Looper:
    """A thread of a worker that calls duties until it is stopped. A duty that raises is called again after its backoff.

    Args:
        word: The end of the thread's name: ``"fetch"`` for ``<name>-fetch``.
        duties: Duties that are due together are called in this order, and urgent ones in between whenever they are due.
        event: Setting it makes all duties due at once, but a failed duty waits for its backoff, except during a stop.
        cap: Most seconds between a failure and the next call.
        last: Called in the thread at its end.
    """

    word: str
    duties: Sequence[Duty]
    options: WorkerOptions
    event: WakeEvent = field(default_factory=WakeEvent)
    cap: float = 5.0
    last: Callable[[], None] = lambda: None
    _stopping: bool = field(default=False, init=False)
    # When the next duty is due. Infinite while duties run, so that wake_by() always sets the event then.
    _next_at: float = field(default=math.inf, init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self.run, name=f"{self.options.name}-{self.word}", daemon=True)
        self._urgent = [duty for duty in self.duties if duty.is_urgent]
        now = self.options.clock()
        for duty in self.duties:
            duty.backoff = self.options.backoff(duty.step, self.cap)
            duty.due_at = now + duty.first * random.random()  # noqa: S311 - spreads the load

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self._stopping = True
        self.event.set()

    def end(self, seconds: float, connection: DedicatedConnection | None = None) -> None:
        """Stop, and wait *seconds* for the thread to end. Then cut its call on *connection*, and wait a little more."""
        self.stop()
        until = self.options.clock() + seconds
        join(self.thread, lambda: until - self.options.clock())
        if connection is not None:
            connection.cut_if_stuck(0.0)
            join(self.thread, lambda: until + self.options.timings.leave_thread - self.options.clock())

    def wake_by(self, at: float) -> None:
        """Wake the thread at once if it would sleep beyond *at*; its duties are then due. Any thread may call this."""
        if at < self._next_at:
            self.event.set()

    def is_over(self) -> bool:
        return self._stopping

    def run(self) -> None:
        while not self.is_over():
            for duty in self.duties:
                for one in (*self._urgent, duty):
                    if one.due_at <= self.options.clock() and not self.is_over():
                        self._call(one)
            self._next_at = min(duty.due_at for duty in self.duties)
            wait = self._next_at - self.options.clock()
            is_woken = wait > 0 and not self.is_over() and self.event.wait(wait)
            self._next_at = math.inf
            if is_woken:
                for duty in self.duties:
                    if self._stopping or not duty.backoff.failures:
                        duty.due_at = 0.0
        self.last()

    def _call(self, duty: Duty) -> None:
        began = self.options.clock()
        try:
            sooner = duty.function()
            duty.backoff.succeeded()
            interval = duty.interval * random.uniform(*duty.spread)  # noqa: S311 - spreads the load
            duty.due_at = began + (interval if sooner is None else min(sooner, interval))
        except BaseException as error:  # noqa: BLE001 - after any failure the other duties go on
            self.options.stats.count("failures")
            duty.due_at = self.options.clock() + duty.backoff.failed(error)


def join(thread: threading.Thread, left: Callable[[], float]) -> None:
    while thread.is_alive() and (wait := left()) > 0:
        thread.join(min(wait, _CHECK))


async def in_thread(work: Callable[[], T]) -> T:
    context = contextvars.copy_context()

    def run() -> tuple[T | None, BaseException | None]:
        try:
            return context.run(work), None
        except BaseException as error:  # noqa: BLE001 - raised below
            # The loop's future would replace some exceptions by others, which lack the handler's traceback.
            return None, error

    result, error = await asyncio.wrap_future(begun_in_thread(run, "fairqueue-handler"))
    if error is None:
        return cast("T", result)
    try:
        raise error
    finally:
        del error


@contextmanager
def on_signal(stop: Callable[[], object], grace: float, clock: Clock) -> Iterator[None]:
    """Call *stop* at the first SIGTERM or SIGINT during the ``with`` block, and end the process at a later one.

    A supervisor may send one stop as two signals, to a process and to its group. So signals within *grace* seconds of
    the first are ignored; this *grace* is not a worker's grace period. Blocks of several workers may overlap. When the
    last of them ends, the signal handlers that the program had before are restored.

    Raises:
        InvalidArgument: This is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgument(
            f"handle_signals is True in thread {threading.current_thread().name!r}, and Python handles signals in the "
            "main thread only; run the worker there, or leave signals to the program and let it call stop()"
        )
    asked_at: float | None = None

    def hear(number: int) -> None:
        nonlocal asked_at
        if asked_at is None:
            stop()
            asked_at = clock()
        elif clock() - asked_at >= grace:
            os._exit(128 + number)

    _hearing.append(hear)
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not _dispatch:
                # A handler that was not set from Python cannot be put back.
                _replaced[number] = signal.signal(number, _dispatch) or signal.SIG_DFL
        yield
    finally:
        _hearing[:] = [one for one in _hearing if one is not hear]
        if not _hearing:
            _put_back()


def _dispatch(number: int, _: FrameType | None) -> None:
    for hear in _hearing.copy():
        # The event loop of a worker that was not stopped may be closed.
        with suppress(RuntimeError):
            hear(number)


def _put_back() -> None:
    _hearing.clear()
    for number, handler in _replaced.items():
        if signal.getsignal(number) is _dispatch:
            signal.signal(number, handler)
    _replaced.clear()


def _before_fork() -> None:
    """Block signals during a fork, since a child would lose signals whose Python handlers have not run yet."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _replaced else None


def _after_fork() -> None:
    if _masks.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _after_fork_in_child() -> None:
    _put_back()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


async def signals_wake_loop(interval: float) -> None:
    """Wake the running loop every *interval* seconds, so that it runs Python's handlers of signals.

    A signal that another thread receives does not end the loop's wait. ``loop.add_signal_handler`` would not do: its
    handlers wait while anything blocks the loop, and replace the program's.
    """
    while True:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(interval)


class ForkGuard:
    """A context manager around every call of a handler, in case the handler forks the process.

    The forked process ends when it leaves the handler or is about to call another handler. It has copies of the
    worker's deliveries and connections, and must neither use nor close them.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def __enter__(self) -> None:
        if os.getpid() != self._process:
            # Forked in a loop, with a handler that was about to begin.
            _end(RuntimeError("a process that was forked in a worker's event loop went on with that loop"))

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        if os.getpid() != self._process:
            _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """End this process as Python would, with the same message and status, but without touching what is the parent's."""
    code = error.code if isinstance(error, SystemExit) else error
    with suppress(BaseException):
        if code is not None and not isinstance(code, int):
            text = "".join(traceback.format_exception(error)) if code is error else f"{code}\n"
            # Not by the log or sys.stderr, since another thread of the parent may have held their locks.
            os.write(2, text.encode(errors="backslashreplace"))
    for stream in sys.stdout, sys.stderr:
        with suppress(BaseException):
            stream.flush()
    os._exit(code & 0xFF if isinstance(code, int) else 0 if code is None else 1)
