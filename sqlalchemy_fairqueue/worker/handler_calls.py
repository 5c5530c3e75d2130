"""What the callers of handlers share: which one, with what, and what an exception means."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import HandlerTimeout, LeaseLost, MessageCancelled, PayloadError, WorkerError, said
from sqlalchemy_fairqueue.unit_of_work import Settle, Verb, record, recorded
from sqlalchemy_fairqueue.values import Outcome, RetryPolicy
from sqlalchemy_fairqueue.worker.decisions import (
    COMPLETE,
    Decision,
    limit_of,
    of_error,
    of_exhausted,
    of_own,
    of_undecodable,
    of_unknown,
)
from sqlalchemy_fairqueue.worker.logs import log_message

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.handling import Handler
    from sqlalchemy_fairqueue.worker.context import Context

TRIES = 4
"""How often a transaction is tried that the database could not serialize."""


def begin(context: Context, default: RetryPolicy) -> Handler:
    """The handler of a delivery, whose time begins.

    What it raises is for :func:`failed`: the payload cannot be decoded, there is no handler, or no attempt is left.
    """
    delivery = context.delivery
    context.max_attempts = limit_of(delivery, _policy(context, default))
    try:
        # Not when it is taken: then all that came with it would wait, and the lease is extended here.
        _ = delivery.payload
    except PayloadError as error:
        raise _Undecodable(error) from None
    try:
        handler = context.source.handler(delivery.kind)
    except WorkerError as error:
        raise _Unknown(error) from None
    if delivery.attempt > context.max_attempts:
        raise _Exhausted
    if handler.timeout is not None:
        context.begin(monotonic() + handler.timeout.total_seconds())
    return handler


def extras(handler: Handler, context: Context, session: Any = None) -> dict[str, Any]:
    """What a handler gets besides the delivery."""
    given: dict[str, Any] = {}
    if handler.session:
        given["session"] = session
    if handler.context:
        given["context"] = context
    return given


def commit_with(session: Session, context: Context, decision: Decision) -> Decision:
    """Let the session's COMMIT end the delivery, and say how it does.

    That is how the handler has asked for it in this session itself; else, as its return stands for.
    """
    delivery = context.delivery
    for asked in recorded(session):
        if isinstance(asked, Settle) and asked.delivery == delivery:
            return of_own(asked.verb, delivery, asked.delay, asked.reason, asked.error)
    record(session, [decision.settle(context.source.target, delivery)])
    return decision.as_sent()


def check_time(context: Context) -> None:
    """Raise HandlerTimeout if the handler came back too late."""
    if context.timed_out:
        raise HandlerTimeout(context.delivery.message_id, context.delivery.kind)


def failed(context: Context, error: BaseException, default: RetryPolicy, name: str) -> Decision | None:
    """How a delivery ends whose handler did not return. None: it is not ours any more.

    It always ends: an exception or a policy of the application's that fails itself costs the message an attempt, too.
    """
    try:
        return _failed(context, error, default, name)
    except BaseException as again:  # noqa: BLE001 - see above
        trouble = WorkerError(
            f"a {type(error).__name__} failed while it was looked at: {type(again).__name__}: {said(again)}"
        )
        _log(logging.ERROR, name, context, trouble)
        return of_error(trouble, context.delivery, RetryPolicy())


def _failed(context: Context, error: BaseException, default: RetryPolicy, name: str) -> Decision | None:
    delivery = context.delivery
    if isinstance(error, _Undecodable):
        _log(logging.ERROR, name, context, error.of)
        return of_undecodable(error.of)
    if isinstance(error, _Exhausted):
        return of_exhausted(delivery, context.max_attempts)
    if context.cancelled or isinstance(error, MessageCancelled):
        # Whatever the handler did or did not, the message is to be gone.
        return COMPLETE
    if context.given_up and isinstance(error, LeaseLost):
        # The stop has said so.
        return None
    if isinstance(error, _Unknown):
        decision = of_unknown(error.of, delivery, default)
        if decision.verb is Verb.RELEASE:
            log_message(logging.WARNING, name, delivery, f"is given back for later, uncounted: {said(error.of)}")
        else:
            _log(logging.ERROR, name, context, error.of)
        return decision
    decision = of_error(error, delivery, _policy(context, default))
    if not isinstance(error, Outcome):
        _log(logging.ERROR if isinstance(error, WorkerError) else logging.WARNING, name, context, error)
    return decision


class _Undecodable(Exception):
    def __init__(self, of: PayloadError) -> None:
        super().__init__(of)
        self.of = of


class _Unknown(Exception):
    def __init__(self, of: WorkerError) -> None:
        super().__init__(of)
        self.of = of


class _Exhausted(Exception):
    pass


def _policy(context: Context, default: RetryPolicy) -> RetryPolicy:
    handler = context.source.queue.handlers.get(context.delivery.kind)
    return context.source.policy(handler, default)


def _log(level: int, name: str, context: Context, error: BaseException) -> None:
    attempt = f"attempt {context.delivery.attempt} of {context.max_attempts}"
    log_message(level, name, context.delivery, f"failed at {attempt}: {type(error).__name__}: {said(error)}")
