"""Handler calls, as far as threads and event loops share them.

That is the handler, its arguments, its transaction and its failures.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.asynchronous import AsyncSession
from sqlalchemy_fairqueue.database.errors import is_serialization_failure
from sqlalchemy_fairqueue.errors import (
    HandlerTransactionWarning,
    LeaseLost,
    MessageCancelled,
    PayloadError,
    WorkerError,
)
from sqlalchemy_fairqueue.queue.contexts import Context, call_of, finished, variables_of
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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.queue.payloads import PayloadSchema
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.operating_system import ForkGuard
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.telemetry import WorkerLog


_TRIES = 4


class NotCalled(Exception):
    """The handler of a delivery cannot be called.

    Args:
        decision: The decision on the delivery.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision


def begin_handling(held: HeldDelivery, options: WorkerOptions) -> Handler:
    """Begin to handle a delivery: its handler.

    Raises:
        NotCalled: The payload cannot be decoded or fits no job, there is no handler, or no attempt is left.
    """
    delivery = held.delivery
    held.begin()
    held.max_attempts = limit_of(delivery, _policy(held, options.retry))
    try:
        # Not when it is taken: all that came with it would wait. Here the lease is extended meanwhile.
        payload = delivery.payload
        handler = held.queue.handler(delivery.kind)
        if delivery.attempt > held.max_attempts:
            raise NotCalled(of_exhausted(delivery, held.max_attempts))
        # Before a session, a child or a middleware has to do with a payload that does not fit a job.
        if handler.schema is not None:
            _check_known(handler.schema, payload)
            handler.schema.decode(payload)
    except PayloadError as error:
        _log(logging.ERROR, options.log, held, error)
        raise NotCalled(of_undecodable(error)) from None
    except WorkerError as error:
        decision = of_unknown(error, delivery, options.retry)
        if decision.verb is Verb.RELEASE:
            options.log.message(logging.WARNING, delivery, f"is given back for later, uncounted: {logged(error)}")
        else:
            _log(logging.ERROR, options.log, held, error, decision)
        raise NotCalled(decision) from None
    return handler


def _check_known(schema: PayloadSchema, payload: object) -> None:
    """Refuse a payload of a newer version as an unknown kind: a newer worker may know it."""
    try:
        schema.check_known(payload)
    except PayloadError as error:
        raise WorkerError(str(error)) from None


def bound_call(
    handler: Handler, held: HeldDelivery, context: Context | None = None, function: Callable[..., Any] | None = None
) -> Callable[[], Any]:
    """The call of a handler with its middleware, or of another function in its place. *context*: with a session."""
    return call_of(handler, held.queue.around(handler), context or context_of(held), function)


def context_of(held: HeldDelivery, session: Any = None) -> Context:
    """Return the context of a call."""
    return Context(held, session, held.queue.resources)


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
    sessions: Callable[[], Session | AsyncSession],
    held: HeldDelivery,
    handler: Handler,
    around: ForkGuard,
    decide: Callable[[HeldDelivery, Handler, object], Decision],
) -> Decision:
    """Call a function with a session, and let its COMMIT settle the delivery. For an AsyncSession in a greenlet.

    A transaction that the database could not serialize is tried again, a few times. Each call gets the delivery as it
    was enqueued, whatever the last one has changed.

    Args:
        sessions: Makes the session.
        held: The delivery.
        handler: Its handler.
        around: A context around the call.
        decide: The decision that a returned value asks for.
    """
    headers = [deepcopy(one.delivery.headers) for one in held.batch]
    left = _TRIES
    while True:
        made = sessions()
        session = made.sync_session if isinstance(made, AsyncSession) else made
        check = CommitCheck(held, handler)
        try:
            guard(session, check)
            context = context_of(held, made)
            with around:
                result = bound_call(handler, held, context)()
                if handler.asynchronous:
                    result = _wait(finished(result))
            check.returned = True
            decision = settle_in(session, held, decide(held, handler, result))
            # What is read in hooks of the COMMIT is as the handler had it, though its middleware has ended.
            (variables_of(context) or copy_context()).run(session.commit)
        except Exception as error:
            left -= 1
            if not left or held.lost or not check.failed_by(error) or not is_serialization_failure(error):
                raise
            for one, before in zip(held.batch, headers, strict=True):
                one.begin_again(deepcopy(before))
        else:
            return decision
        finally:
            guard(session, None)
            if isinstance(made, AsyncSession):
                # A cancelled commit must not leave its connection behind.
                _wait(asyncio.shield(made.close()))
            else:
                made.close()


def _wait(awaitable: Awaitable[Any]) -> Any:
    # Not importable without greenlet, but then there is no AsyncSession either.
    from sqlalchemy.util import await_only  # noqa: PLC0415

    return await_only(awaitable)


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
    if isinstance(error, NotCalled):
        return error.decision
    if held.cancelled or isinstance(error, MessageCancelled):
        # The message is to be gone, however its handler ended.
        return COMPLETE
    if held.given_up and isinstance(error, LeaseLost):
        # The stop has logged it.
        return None
    decision = of_error(error, held.delivery, _policy(held, options.retry))
    if not isinstance(error, Outcome):
        level = logging.ERROR if isinstance(error, WorkerError) else logging.WARNING
        _log(level, options.log, held, error, decision)
    return decision


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
