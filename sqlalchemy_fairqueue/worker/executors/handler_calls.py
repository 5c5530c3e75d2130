"""Handler calls, as far as threads and event loops share them: handler, arguments, transaction, and failures."""

from __future__ import annotations

import inspect
import logging
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import (
    HandlerTransactionWarning,
    LeaseLost,
    MessageCancelled,
    PayloadError,
    WorkerError,
    said,
)
from sqlalchemy_fairqueue.unit_of_work import Settle, Verb, guard, record, recorded
from sqlalchemy_fairqueue.values import Outcome, RetryPolicy
from sqlalchemy_fairqueue.worker.decisions import (
    COMPLETE,
    Decision,
    RemoteError,
    is_serialization_failure,
    limit_of,
    of_error,
    of_exhausted,
    of_own_verb,
    of_undecodable,
    of_unknown,
)
from sqlalchemy_fairqueue.worker.executors.context import Context
from sqlalchemy_fairqueue.worker.logs import log_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.operating_system import ForkGuard

TRIES = 4
"""Tries of a transaction that the database cannot serialize."""


def begin_handling(held: HeldDelivery, default: RetryPolicy) -> Handler:
    """Begin to handle a delivery: its handler.

    An exception is for :func:`decide_on_failure`: the payload cannot be decoded, there is no handler, or no attempt is
    left.
    """
    delivery = held.delivery
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
    return handler


def arguments(handler: Handler, held: HeldDelivery, session: Any = None) -> dict[str, Any]:
    """The arguments of a handler besides the delivery."""
    given: dict[str, Any] = {}
    if handler.session:
        given["session"] = session
    if handler.context:
        given["context"] = Context(held)
    return given


class CommitCheck:
    """Check at the beginning of each commit of a handler's session. The worker's own commit sets ``returned`` before.

    A lease that is lost, a message that is cancelled and a timeout that is over refuse the commit. One that the handler
    makes itself gives a warning, at the line where the handler is defined.
    """

    def __init__(self, held: HeldDelivery, handler: Handler) -> None:
        self.returned = False
        self._held = held
        self._handler = handler

    def __call__(self) -> None:
        """Raise if the commit must not be, and warn if the handler makes it."""
        self._held.check()
        if not self.returned:
            self._warn()

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
    for left in reversed(range(TRIES)):
        session = sessions()
        try:
            check = CommitCheck(held, handler)
            guard(session, check)
            with around:
                result = handler.function(held.delivery, **arguments(handler, held, session))
            check.returned = True
            decision = settle_in(session, held, decide(held, handler, result))
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


def settle_in(session: Session, held: HeldDelivery, decision: Decision) -> Decision:
    """Let the session's COMMIT settle the delivery, and say how it does.

    If the handler has settled it by a verb in this session itself, that counts; else *decision*, which its return value
    asks for.
    """
    delivery = held.delivery
    for operation in recorded(session):
        if isinstance(operation, Settle) and operation.delivery == delivery:
            return of_own_verb(operation.verb, delivery, operation.delay, operation.reason, operation.error)
    record(session, [decision.operation(held.queue.target, delivery)])
    return decision.as_sent()


def decide_on_failure(held: HeldDelivery, error: BaseException, default: RetryPolicy, worker: str) -> Decision | None:
    """The decision on a delivery whose handler raised. None: it is not this worker's any more.

    There always is one: an exception or a policy of the application's that itself raises costs an attempt, too.
    """
    try:
        return _decide(held, error, default, worker)
    except BaseException as again:  # noqa: BLE001 - see above
        trouble = WorkerError(
            f"a {type(error).__name__} failed while it was examined: {type(again).__name__}: {said(again)}"
        )
        _log(logging.ERROR, worker, held, trouble)
        return of_error(trouble, held.delivery, RetryPolicy())


def _decide(held: HeldDelivery, error: BaseException, default: RetryPolicy, worker: str) -> Decision | None:
    delivery = held.delivery
    if isinstance(error, _Undecodable):
        _log(logging.ERROR, worker, held, error.cause)
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
        decision = of_unknown(error.cause, delivery, default)
        if decision.verb is Verb.RELEASE:
            log_message(logging.WARNING, worker, delivery, f"is given back for later, uncounted: {said(error.cause)}")
        else:
            _log(logging.ERROR, worker, held, error.cause)
        return decision
    decision = of_error(error, delivery, _policy(held, default))
    if not isinstance(error, Outcome):
        _log(logging.ERROR if isinstance(error, WorkerError) else logging.WARNING, worker, held, error)
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
    return held.queue.policy(held.queue.queue.handlers.get(held.delivery.kind), default)


def _log(level: int, worker: str, held: HeldDelivery, error: BaseException) -> None:
    attempt = f"attempt {held.delivery.attempt} of {held.max_attempts}"
    name = "" if isinstance(error, RemoteError) else f"{type(error).__name__}: "
    log_message(level, worker, held.delivery, f"failed at {attempt}: {name}{said(error)}")
