"""Handler calls, as far as threads and event loops share them.

That is the handler, its arguments, its transaction, its time limit and its failures.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
import warnings
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.errors import is_serialization_failure
from sqlalchemy_fairqueue.errors import (
    HandlerTransactionWarning,
    LeaseLost,
    MessageCancelled,
    PayloadError,
    WorkerError,
)
from sqlalchemy_fairqueue.queue.contexts import Context, call_of, variables_of
from sqlalchemy_fairqueue.queue.handlers import handlers_of
from sqlalchemy_fairqueue.texts import logged, said
from sqlalchemy_fairqueue.unit_of_work.sessions import guard, record, recorded
from sqlalchemy_fairqueue.unit_of_work.settlements import Settle, Verb
from sqlalchemy_fairqueue.values.outcomes import Outcome, RetryPolicy
from sqlalchemy_fairqueue.worker.decisions import (
    COMPLETE,
    Decision,
    RemoteError,
    limit_of,
    of_error,
    of_exhausted,
    of_own_verb,
    of_undecodable,
    of_unknown,
)
from sqlalchemy_fairqueue.worker.operating_system import join
from sqlalchemy_fairqueue.worker.wakeups import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.queue.payloads import PayloadSchema
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.operating_system import ForkGuard
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.telemetry import WorkerLog


_TRIES = 4


def begin_handling(held: HeldDelivery, default: RetryPolicy) -> Handler:
    """Begin to handle a delivery: its handler.

    An exception is for :func:`decide_on_failure`: the payload cannot be decoded, there is no handler, or no attempt is
    left.
    """
    delivery = held.delivery
    held.begin()
    held.max_attempts = limit_of(delivery, _policy(held, default))
    try:
        # Not when it is taken: all that came with it would wait. Here the lease is extended meanwhile.
        _ = delivery.payload
    except PayloadError as error:
        raise _Undecodable(error) from None
    try:
        handler = held.queue.handler(delivery.kind)
    except WorkerError as error:
        raise _UnknownKind(error) from None
    if delivery.attempt > held.max_attempts:
        raise _Exhausted
    if handler.schema is not None:
        _check_fit(handler.schema, held)
    return handler


def _check_fit(schema: PayloadSchema, held: HeldDelivery) -> None:
    """Refuse a payload that does not fit a job, before a session, a child or a middleware has to do with it."""
    payload = held.delivery.payload
    try:
        schema.check_known(payload)
    except PayloadError as error:
        raise _UnknownKind(WorkerError(str(error))) from None
    try:
        schema.decode(payload)
    except PayloadError as error:
        raise _Undecodable(error) from None


def bound_call(
    handler: Handler, held: HeldDelivery, context: Context | None = None, function: Callable[..., Any] | None = None
) -> Callable[[], Any]:
    """The call of a handler with its middleware, or of another function in its place. *context*: with a session."""
    return call_of(handler, held.queue.around(handler), context or context_of(held), function)


def context_of(held: HeldDelivery, session: Any = None) -> Context:
    """Return the context of a call."""
    return Context(held, session, held.queue.resources)


class SessionCalls:
    """The calls of a handler that takes a session, in one attempt.

    A transaction that the database could not serialize is tried again, a few times. Each call gets the delivery as it
    was enqueued, whatever the last one has changed.
    """

    def __init__(self, held: HeldDelivery) -> None:
        self._held = held
        self._headers = [deepcopy(one.delivery.headers) for one in held.batch]
        self._left = _TRIES

    def begin_again(self, check: CommitCheck, error: Exception) -> bool:
        """Return whether the handler is to be called again after an error."""
        self._left -= 1
        if not self._left or self._held.lost or not check.failed_by(error) or not is_serialization_failure(error):
            return False
        for one, headers in zip(self._held.batch, self._headers, strict=True):
            one.begin_again(deepcopy(headers))
        return True


class CommitCheck:
    """Check at the beginning of each commit of a handler's session. The worker's own commit sets ``returned`` before.

    A lease that is lost, a message that is cancelled and a timeout that is over refuse the commit. One that the handler
    makes itself gives a warning, at the line where the handler is defined.

    It keeps what the database refused on the session's connections, to tell it from the errors of others.
    """

    def __init__(self, held: HeldDelivery, handler: Handler) -> None:
        self.returned = False
        self._failures: list[BaseException] = []
        self._held = held
        self._handler = handler

    def __call__(self) -> None:
        """Raise if the commit must not be, and warn if the handler makes it."""
        self._held.check()
        if not self.returned:
            self._warn()

    def failed(self, error: BaseException) -> None:
        """Note an error of the session's own connection."""
        self._failures.append(error)

    def failed_by(self, error: BaseException) -> bool:
        """Return whether an error came from the session's own connection."""
        return any(one is error for one in self._failures)

    def _warn(self) -> None:
        function = self._handler.function
        while isinstance(function, partial):
            function = function.func
        function = inspect.unwrap(function)
        name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
        message = (
            f"handler {name} of kind {self._handler.kind!r} commits its session itself, without the completion of its "
            "message: what it wrote happens again if the message is delivered again; leave the commit to the worker"
        )
        plain: Any = function if inspect.isroutine(function) else type(function).__call__
        if (code := getattr(plain, "__code__", None)) is None:
            warnings.warn(message, HandlerTransactionWarning, stacklevel=2)
            return
        # Beside the function, where the filters keep what they have shown: the stack does not lead there from a loop.
        registry = plain.__globals__.setdefault("__warningregistry__", {})
        warnings.warn_explicit(
            message, HandlerTransactionWarning, code.co_filename, code.co_firstlineno, function.__module__, registry
        )


def call_in_session(
    sessions: Callable[[], Session],
    held: HeldDelivery,
    handler: Handler,
    around: ForkGuard,
    decide: Callable[[HeldDelivery, Handler, object], Decision],
) -> Decision:
    """Call a plain function with a session, and let its COMMIT settle the delivery.

    Args:
        sessions: Makes the session.
        held: The delivery.
        handler: Its handler.
        around: A context around the call.
        decide: The decision that a returned value asks for.
    """
    calls = SessionCalls(held)
    while True:
        session = sessions()
        check = CommitCheck(held, handler)
        try:
            guard(session, check)
            context = context_of(held, session)
            with around:
                result = bound_call(handler, held, context)()
            check.returned = True
            decision = settle_in(session, held, decide(held, handler, result))
            # What is read in hooks of the COMMIT is as the handler had it, though its middleware has ended.
            (variables_of(context) or copy_context()).run(session.commit)
        except Exception as error:
            if not calls.begin_again(check, error):
                raise
        else:
            return decision
        finally:
            guard(session, None)
            session.close()


def settle_in(session: Session, held: HeldDelivery, decision: Decision) -> Decision:
    """Let the session's COMMIT settle the delivery and those of its batch, and say how it does.

    If the handler has settled one by a verb in this session itself, that counts; else *decision*, which its return
    value asks for, or what was decided on a follower.
    """
    for follower in held.followers:
        follower.decided = _settle_one(session, follower, follower.decided or COMPLETE)
    return _settle_one(session, held, decision)


def _settle_one(session: Session, held: HeldDelivery, decision: Decision) -> Decision:
    delivery = held.delivery
    for operation in recorded(session):
        if isinstance(operation, Settle) and operation.delivery == delivery:
            return of_own_verb(operation.verb, delivery, operation.delay, operation.reason, operation.error)
    operation = decision.operation(held.queue.target, delivery, held.measured_cost, held.stop_charging())
    record(session, [operation])
    return decision.as_sent()


def decide_on_failure(held: HeldDelivery, error: BaseException, options: WorkerOptions) -> Decision | None:
    """The decision on a delivery whose handler raised. None: it is not this worker's any more.

    There always is one: an exception or a policy of the application's that itself raises costs an attempt, too.
    """
    try:
        return _decide(held, error, options)
    except BaseException as again:  # noqa: BLE001 - see above
        trouble = WorkerError(
            f"a {type(error).__name__} failed while it was examined: {type(again).__name__}: {said(again)}"
        )
        _log(logging.ERROR, options.log, held, trouble)
        return of_error(trouble, held.delivery, RetryPolicy())


def _decide(held: HeldDelivery, error: BaseException, options: WorkerOptions) -> Decision | None:
    delivery = held.delivery
    if isinstance(error, _Undecodable):
        _log(logging.ERROR, options.log, held, error.cause)
        return of_undecodable(error.cause)
    if isinstance(error, _Exhausted):
        return of_exhausted(delivery, held.max_attempts)
    if held.cancelled or isinstance(error, MessageCancelled):
        # The message is to be gone, however its handler ended.
        return COMPLETE
    if held.given_up and isinstance(error, LeaseLost):
        # The stop has logged it.
        return None
    if isinstance(error, _UnknownKind):
        decision = of_unknown(error.cause, delivery, options.retry)
        if decision.verb is Verb.RELEASE:
            options.log.message(logging.WARNING, delivery, f"is given back for later, uncounted: {logged(error.cause)}")
        else:
            _log(logging.ERROR, options.log, held, error.cause, decision)
        return decision
    decision = of_error(error, delivery, _policy(held, options.retry))
    if not isinstance(error, Outcome):
        level = logging.ERROR if isinstance(error, WorkerError) else logging.WARNING
        _log(level, options.log, held, error, decision)
    return decision


class _Undecodable(Exception):
    def __init__(self, cause: PayloadError) -> None:
        super().__init__(cause)
        self.cause = cause


class _UnknownKind(Exception):
    def __init__(self, cause: WorkerError) -> None:
        super().__init__(cause)
        self.cause = cause


class _Exhausted(Exception):
    pass


def _policy(held: HeldDelivery, default: RetryPolicy) -> RetryPolicy:
    return held.queue.policy(handlers_of(held.queue.queue).get(held.delivery.kind), default)


def _log(
    level: int, log: WorkerLog, held: HeldDelivery, error: BaseException, decision: Decision | None = None
) -> None:
    """Log a failed attempt, and the command that shows its traceback, which is too long for a log."""
    shown = ""
    if decision is not None and decision.error is not None:
        noun = "dead" if decision.verb is Verb.BURY else "messages"
        shown = f"; traceback: fairqueue {noun} show {held.delivery.message_id} {held.queue.reference}"
    attempt = f"attempt {held.delivery.attempt} of {held.max_attempts}"
    name = "" if isinstance(error, RemoteError) else f"{type(error).__name__}: "
    log.message(level, held.delivery, f"failed at {attempt}: {name}{logged(error)}{shown}")


# Seconds after a check that failed.
_AGAIN = 1.0
# Seconds that a thread can wait at once, on any system.
_LONGEST = 3600.0


class TimeLimits:
    """The thread that looks for handlers whose time is over.

    Nothing can interrupt a Python thread, and a blocked event loop runs no timer. So the handler cannot be asked, and
    the heartbeat is too late, since it waits for the database.

    It keeps no list of handlers: most return long before their time is over. It looks through those at work when the
    first of them may be due, which is once in the time of a limit.

    Args:
        options: The worker's.
        check: Deals with the handlers whose time is over. Returns when the next one may be, by the worker's clock.
    """

    def __init__(self, options: WorkerOptions, check: Callable[[], float]) -> None:
        self._log = options.log
        self._clock = options.clock
        self._check = check
        self._event = WakeEvent()
        self._stopping = False
        # It waits until then. Infinite while it checks: it may miss a time that is noted meanwhile.
        self._next = math.inf
        self._thread = threading.Thread(target=self._run, name=f"{options.name}-limits", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Stop the thread, and wait for it for so long."""
        self._stopping = True
        self._event.set()
        until = self._clock() + seconds
        join(self._thread, lambda: until - self._clock())

    def note(self, over_at: float) -> None:
        """The time of a handler is over then. Any thread may call it, after the check can find the handler."""
        if over_at < self._next:
            self._event.set()

    def _run(self) -> None:
        while not self._stopping:
            self._next = math.inf
            try:
                over_at = self._check()
            except BaseException as error:  # noqa: BLE001 - after any failure the next handler must be noticed
                self._log.error("could not check the time of its handlers: %s: %s", type(error).__name__, logged(error))
                over_at = self._clock() + _AGAIN
            self._next = over_at
            self._event.wait(min(over_at - self._clock(), _LONGEST))
