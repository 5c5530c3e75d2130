"""Main function of a child process that runs handlers for a worker (see ``child_processes``).

The main thread runs handlers, one after the other. Another thread reads what the worker says: calls, that it stops, and
its end. When the pipe to the worker ends, because the worker was killed, the child kills itself and all processes that
its handlers have started. On Linux the kernel does so even if a handler never lets another Python thread run.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import parent_process
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sqlalchemy_fairqueue.errors import MessageCancelled
from sqlalchemy_fairqueue.queue.contexts import Context, called
from sqlalchemy_fairqueue.queue.results import UnkeptValue
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.values.outcomes import Bury, Outcome, Release, Retry
from sqlalchemy_fairqueue.worker.decisions import cause_of, classes_of, is_circumstance, returned_outcome, text_of
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, TrackedLease

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from multiprocessing.connection import Connection

    from sqlalchemy_fairqueue.values.messages import Delivery
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue

    Request = tuple[Callable[..., Any], list[Delivery], bool, bool, int, timedelta | None]

CALL, STOPPING, END = b"c", b"s", b"e"
"""First bytes of what a worker says: a call follows, it stops, and the child is to end."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a handler.

    Attributes:
        is_raised: Whether it raised.
        outcome: What it returned or raised, if that is an outcome or says that the message was cancelled. An outcome of
            a class of the application's is here as one of the class that it is derived from.
        own: That outcome as it is, pickled, if it can be.
        value: What else it returned, if its queue keeps results.
        summary: Another exception that it raised, in short.
        text: That exception, or the cause of the outcome, with its traceback.
        classes: The names of the class of that exception and of those that it is derived from.
        circumstance: Whether that exception is not the handler's doing.
        settled: The verbs by which it has settled its deliveries itself, of each.
        outcomes: What it asked for single deliveries of a batch, by message.
        cost: What the attempt cost, as it says.
    """

    is_raised: bool = False
    outcome: Any = None
    own: bytes | None = None
    value: Any = None
    summary: str = ""
    text: str | None = None
    classes: tuple[str, ...] = ()
    circumstance: bool = False
    settled: list[list[str]] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    cost: int | None = None


def main(connection: Connection[Any, Any]) -> None:
    """Run handlers until the worker says that it is over, or is gone."""
    # A group of its own: a Ctrl-C in the worker's terminal is for the worker to deal with, and a kill ends all of it.
    os.setsid()
    # No handler that is ignored: the programs that a handler starts would ignore it, too.
    for number in _SIGNALS:
        signal.signal(number, _leave_to_the_worker)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    _die_with_parent()
    listener = _Listener(connection)
    threading.Thread(target=listener.run, name="fairqueue-listener", daemon=True).start()
    connection.send_bytes(b"ready")
    while (call := listener.calls.get()) is not None:
        # In a context of its own: what a handler sets in a context variable is not left for the next message.
        connection.send_bytes(copy_context().run(_handle, listener, connection, call))


def _handle(listener: _Listener, connection: Connection[Any, Any], request: bytes) -> bytes:
    """Handle a delivery. It tells the worker when the handler begins, or could not; returns how it ended."""
    deliveries: list[Delivery] = []
    held: HeldDelivery | None = None
    has_begun = False
    try:
        # Imports the module of the handler.
        function, deliveries, is_batch, takes_context, max_attempts, timeout = cast("Request", pickle.loads(request))  # noqa: S301 - the worker's
        # Its lease is for the worker to watch, who kills this process.
        lease = TrackedLease(deliveries[0].lease.id, math.inf, monotonic)
        held, *followers = (
            HeldDelivery(delivery, lease, cast("ServedQueue", None), monotonic()) for delivery in deliveries
        )
        for follower in followers:
            follower.follow(held)
        held.max_attempts = max_attempts
        listener.held = held
        held.stopping = listener.is_stopping
        connection.send_bytes(b"begun")
        has_begun = True
        held.limit_time(timeout)
        context = Context(held)
        given = {"context": context} if takes_context else {}
        result = called(context, partial(function, deliveries if is_batch else deliveries[0], **given))
        outcome = returned_outcome(result)
        outcomes = {message_id: cast("Outcome", _plain(one)["outcome"]) for message_id, one in held.outcomes.items()}
        answer = Answer(settled=[one.settled for one in deliveries], cost=held.cost, outcomes=outcomes)
        if outcome is not None:
            return pickle.dumps(replace(answer, **_plain(outcome)))
        keeps_result = any(one.keeps_result for one in deliveries)
        return _with_value(answer, result) if keeps_result else pickle.dumps(answer)
    except BaseException as error:  # noqa: BLE001 - the worker decides what becomes of the message
        if not has_begun:
            connection.send_bytes(b"begun")
        return _raised(error, [one.settled for one in deliveries], None if held is None else held.cost)
    finally:
        listener.held = None


def _with_value(answer: Answer, value: object) -> bytes:
    """The answer with what a handler returned. It has done its work, whatever that is."""
    try:
        return pickle.dumps(replace(answer, value=value))
    except Exception as error:  # noqa: BLE001 - objects of the handler's may raise anything
        problem = f"a {type(value).__name__} cannot be sent from its child process: {said(error)}"
        return pickle.dumps(replace(answer, value=UnkeptValue(problem)))


def _plain(outcome: Outcome | MessageCancelled) -> dict[str, Any]:
    """Return an outcome as fields of an answer: the worker may not know the class, nor be able to make it."""
    own: bytes | None = None
    if type(outcome) not in {Retry, Release, Bury}:
        with suppress(Exception):
            own = pickle.dumps(outcome)
    match outcome:
        case Retry():
            return {"outcome": Retry(delay=outcome.delay, error=outcome.error), "own": own}
        case Release():
            return {"outcome": Release(delay=outcome.delay), "own": own}
        case Bury():
            return {"outcome": Bury(outcome.reason), "own": own}
    return {"outcome": outcome}


def _raised(error: BaseException, settled: list[list[str]], cost: int | None) -> bytes:
    summary = f"{type(error).__name__}: {said(error)}"
    if isinstance(error, (Retry, Release, Bury, MessageCancelled)):
        try:
            answer = Answer(is_raised=True, summary=summary, text=cause_of(error), settled=settled, cost=cost)
            return pickle.dumps(replace(answer, **_plain(error)))
        except Exception as problem:  # noqa: BLE001 - classes of the application's may raise anything
            error = problem
    answer = Answer(
        is_raised=True,
        summary=summary,
        text=text_of(error),
        classes=classes_of(error),
        circumstance=is_circumstance(error),
        settled=settled,
        cost=cost,
    )
    return pickle.dumps(answer)


class _Listener:
    """The messages of the worker.

    Attributes:
        calls: Calls. None: no more come.
        held: The delivery at work.
        is_stopping: Whether the worker stops.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self.calls: SimpleQueue[bytes | None] = SimpleQueue()
        self.held: HeldDelivery | None = None
        self.is_stopping = False

    def run(self) -> None:
        while True:
            try:
                said = self._connection.recv_bytes()
            except (EOFError, OSError):
                _die()
            word, rest = said[:1], said[1:]
            if word == END:
                self.calls.put(None)
            elif word == STOPPING:
                # First: handlers that begin from now on know it.
                self.is_stopping = True
                held = self.held
                if held is not None:
                    held.stopping = True
            else:
                self.calls.put(rest)


def _leave_to_the_worker(number: int, frame: object) -> None:
    """A supervisor that signals all processes of a service means the worker, which gives handlers their time."""


def _die_with_parent() -> None:
    """Let the kernel kill this process and its group when the worker dies, where it can."""
    parent = parent_process()
    if parent is None or sys.platform != "linux":
        return
    import fcntl  # noqa: PLC0415 - not on every system

    pipe = parent.sentinel
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    # It may have died before.
    if not parent.is_alive():
        _die()


def _die() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    # Nobody comes here.
    os._exit(1)
