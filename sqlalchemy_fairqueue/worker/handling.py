"""Handling of a delivery, in a thread or event loop: the call of its handler, and the decision how to settle it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextvars import copy_context
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.util import await_only

from sqlalchemy_fairqueue.database.asynchronous import AsyncSession
from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure
from sqlalchemy_fairqueue.errors import (
    HandlerCrashed,
    HandlerTimeout,
    HandlerTransactionWarning,
    LeaseLost,
    MessageCancelled,
    PayloadError,
    WorkerError,
)
from sqlalchemy_fairqueue.queue.contexts import Context, call_of, finished, variables_of
from sqlalchemy_fairqueue.queue.results import encoded_result, results_of_batch
from sqlalchemy_fairqueue.texts import logged, said
from sqlalchemy_fairqueue.unit_of_work.operations import Settle, Verb
from sqlalchemy_fairqueue.unit_of_work.sessions import guard, record, recorded
from sqlalchemy_fairqueue.values.checks import check_text
from sqlalchemy_fairqueue.values.outcomes import Bury, Outcome, Release, Retry, RetryPolicy
from sqlalchemy_fairqueue.worker.leases import COMPLETE, LOST, RELEASE, Decision, HeldDelivery

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.values.messages import Delivery
    from sqlalchemy_fairqueue.worker.threads import ForkGuard

# The most calls of a handler in one attempt.
_TRIES = 4
# The most characters that are kept of a traceback, so that a deep recursion does not fill the table.
_MOST = 16_000
# Modules whose frames call handlers; sqlalchemy.util has the frames of greenlets.
_OURS = ("sqlalchemy_fairqueue.worker", "sqlalchemy_fairqueue.queue.jobs", "sqlalchemy.util")
_CIRCUMSTANCES = (HandlerCrashed, HandlerTimeout, LeaseLost, WorkerError)
# The delays of deliveries that the database refuses to settle.
_FALLBACK = RetryPolicy()
# How often a message of an unknown kind is released uncounted, to workers that may know it. With the default policy
# this takes about three quarters of an hour, which is long enough for a deploy. After that, attempts count, so that
# messages of a kind that no worker knows become dead letters.
UNKNOWN_KIND_RELEASES = 15


Decisions = Sequence[Decision]
"""The decisions on the deliveries of a batch, in order."""


@dataclass(eq=False)
class RemoteError(Exception):
    """Stands for an exception of a handler in a child process.

    Attributes:
        text: The exception with its traceback, to be stored.
        classes: The names of its class and base classes.
        circumstance: Whether it is retried even if ``retry_on`` does not name it.
    """

    summary: str
    text: str
    classes: tuple[str, ...] = ()
    circumstance: bool = False

    def __str__(self) -> str:
        return self.summary


def returned_outcome(result: object) -> Outcome | None:
    """Return the Retry, Release or Bury that a handler returned; None if *result* is no outcome.

    If *result* is a class of outcomes, return an instance of the class.

    Raises:
        TypeError: *result* is a class that needs an argument, such as Bury.
        WorkerError: *result* is a list of outcomes. Or it is a generator or an awaitable, whose work is not done yet.
        Outcome: *result* is an outcome of another class; it is raised itself.
    """
    if isinstance(result, type) and issubclass(result, Outcome):
        result = result()
    if isinstance(result, (Retry, Release, Bury)):
        return result
    if isinstance(result, Outcome):
        raise result
    if isinstance(result, (list, tuple)) and any(isinstance(one, (Retry, Release, Bury)) for one in result):
        raise WorkerError(
            "the handler returned outcomes in a list, which settle nothing; settle single messages of a batch by "
            "context.retry(delivery), context.release(delivery) or context.bury(delivery)"
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise WorkerError("the handler returned a generator, which nobody runs: nothing was done; do not yield in it")
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise WorkerError(
            "the handler returned an awaitable, which nobody awaits here: nothing was done; make it an async function, "
            "which needs an AsyncWorker"
        )
    return None


def of_return(result: object, delivery: Delivery, policy: RetryPolicy) -> Decision:
    outcome = returned_outcome(result)
    return COMPLETE if outcome is None else of_error(outcome, delivery, policy)


def of_own_verb(asked: Decision, delivery: Delivery) -> Decision:
    """Return how the handler's own verb, *asked*, settled a delivery. After the last attempt a retry has buried it."""
    if asked.verb is Verb.RETRY and delivery.attempt >= delivery.max_attempts:
        return Decision(Verb.BURY, reason="attempts exhausted", error=asked.error, sent=True)
    return replace(asked, reason=asked.reason or "its handler said so", sent=True)


def of_error(error: BaseException, delivery: Delivery, policy: RetryPolicy) -> Decision:
    match error:
        case Release():
            return Decision(Verb.RELEASE, error.delay)
        case Bury():
            return Decision(Verb.BURY, reason=error.reason, error=cause_of(error))
        case Retry():
            return _again(delivery, policy, error.delay, cause_of(error) if error.error is None else error.error)
    named = outcome_of(error, policy)
    is_unnamed = named is None and policy.retry_on is not None
    if isinstance(named, Bury) or (is_unnamed and not is_circumstance(error)):
        return Decision(Verb.BURY, reason=_bury_reason(error), error=text_of(error))
    return _again(delivery, policy, None, text_of(error))


def outcome_of(error: BaseException, policy: RetryPolicy) -> Outcome | None:
    outcome: Outcome
    if _is_any(error, policy.bury_on):
        outcome = Bury(_bury_reason(error))
    elif _is_any(error, policy.retry_on or ()):
        outcome = Retry()
    else:
        return None
    outcome.__cause__ = error
    return outcome


def classes_of(error: BaseException) -> tuple[str, ...]:
    return tuple(map(_name, type(error).__mro__))


def is_circumstance(error: BaseException) -> bool:
    """Return whether to retry the exception even if ``retry_on`` lacks it, as for a timeout or a lost connection."""
    if isinstance(error, RemoteError):
        return error.circumstance
    return isinstance(error, _CIRCUMSTANCES) or is_away(error) or is_serialization_failure(error)


def _is_any(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, RemoteError):
        return any(_name(one) in error.classes for one in classes)
    return isinstance(error, classes)


def _name(of: type) -> str:
    # The main module has another name in a child process.
    return f"{of.__module__.replace('__mp_main__', '__main__')}.{of.__qualname__}"


def _bury_reason(error: BaseException) -> str:
    name = error.classes[0].rpartition(".")[2] if isinstance(error, RemoteError) else type(error).__name__
    return f"not retried: {name:.200}"


def of_unknown(error: WorkerError, delivery: Delivery, policy: RetryPolicy) -> Decision:
    uncounted = delivery.deliveries - delivery.attempt
    if uncounted < UNKNOWN_KIND_RELEASES:
        return Decision(Verb.RELEASE, policy.delay(uncounted + 1))
    return of_error(error, delivery, policy)


def of_exhausted(delivery: Delivery, limit: int) -> Decision:
    reason = (
        f"attempts exhausted: the limit is {limit}, {delivery.attempt - 1} had begun, and the last ended without a "
        "word: the process died, the lease was lost, or the limit was higher then"
    )
    return Decision(Verb.BURY, reason=reason)


def fallback(decision: Decision, delivery: Delivery) -> Decision | None:
    """Return what to try after a refused decision: a failed attempt without error text, then a release, then None."""
    if decision.verb is Verb.RELEASE:
        return None
    failed = _again(delivery, _FALLBACK, decision.delay or None, None)
    if (decision.verb, decision.reason, decision.error) == (failed.verb, failed.reason, None):
        return Decision(Verb.RELEASE, _FALLBACK.delay(delivery.deliveries))
    return failed


def limit_of(delivery: Delivery, policy: RetryPolicy) -> int:
    return min(delivery.max_attempts, policy.max_attempts or delivery.max_attempts)


def _again(delivery: Delivery, policy: RetryPolicy, delay: timedelta | None, error: str | None) -> Decision:
    limit = limit_of(delivery, policy)
    if delivery.attempt >= limit:
        # The dead letter shows the message's own limit. If the policy's limit is lower, the reason must name it.
        whose = "" if limit == delivery.max_attempts else f": the policy's limit is {limit}"
        return Decision(Verb.BURY, reason=f"attempts exhausted{whose}", error=error)
    return Decision(Verb.RETRY, policy.delay(delivery.attempt) if delay is None else delay, error=error)


def text_of(error: BaseException) -> str:
    if isinstance(error, RemoteError):
        return check_text("error", error.text)
    trace = error.__traceback__
    # These frames tell nothing about the handler.
    while trace and trace.tb_next and str(trace.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]}\n[...]\n{text[-_MOST // 2 :]}"
    return check_text("error", text)


def cause_of(outcome: BaseException) -> str | None:
    cause = outcome.__cause__ or outcome.__context__
    return None if cause is None else text_of(cause)


@dataclass(eq=False)
class NotCalled(Exception):
    """The handler of a delivery cannot be called; *decision* says what to do instead."""

    decision: Decision


def begin_handling(held: HeldDelivery) -> Handler:
    """Begin a delivery, check its payload, and return its handler; raise NotCalled if the handler cannot be called."""
    if held.lost or held.cancelled:
        raise NotCalled(RELEASE)
    delivery = held.delivery
    held.begin()
    held.max_attempts = limit_of(delivery, held.queue.policy(delivery.kind))
    try:
        # Decoded here and not at the dequeue, where all other messages would wait; here the lease is extended
        # meanwhile.
        payload = delivery.payload
        handler = held.queue.handler(delivery.kind)
        if delivery.attempt > held.max_attempts:
            raise NotCalled(of_exhausted(delivery, held.max_attempts))
        # Checked before a session, a child process or middleware handles a payload that does not fit a job.
        if handler.schema is not None:
            try:
                handler.schema.check_known(payload)
            except PayloadError as error:
                # The payload is of a newer version of the job, which other workers may know.
                raise WorkerError(str(error)) from None
            handler.schema.decode(payload)
    except PayloadError as error:
        _log(logging.ERROR, held, error)
        # A retry would not help.
        reason = f"its payload cannot be decoded: {check_text('error', str(error))}"[:1000]
        raise NotCalled(Decision(Verb.BURY, reason=reason)) from None
    except WorkerError as error:
        decision = of_unknown(error, delivery, held.queue.options.retry)
        if decision.verb is Verb.RELEASE:
            held.log(logging.WARNING, f"is given back for later, uncounted: {logged(error)}")
        else:
            _log(logging.ERROR, held, error, decision)
        raise NotCalled(decision) from None
    return handler


def bound_call(
    handler: Handler, held: HeldDelivery, context: Context | None = None, function: Callable[..., Any] | None = None
) -> Callable[[], Any]:
    context = context or Context(held, resources=held.queue.resources)
    return call_of(handler, held.queue.around(handler), context, function)


class CommitCheck:
    """Refuses commits of a handler's session after a lost lease, a cancelled message or an exceeded timeout.

    Also warns if the handler itself commits. The worker sets ``returned`` before its own commit, to get no warning.
    """

    def __init__(self, held: HeldDelivery, handler: Handler) -> None:
        self.returned = False
        # Errors that came from the session's own connection.
        self.failures: list[BaseException] = []
        self._held = held
        self._handler = handler

    def __call__(self) -> None:
        self._held.check()
        if not self.returned:
            self._warn()

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)

    def _warn(self) -> None:
        function: Any = self._handler.function
        while isinstance(function, partial):
            function = function.func
        function = inspect.unwrap(function)
        function = function if inspect.isroutine(function) else type(function).__call__
        message = (
            f"the handler of kind {self._handler.kind!r} commits its session itself, without the completion of its "
            "message: what it wrote happens again if the message is delivered again; leave the commit to the worker"
        )
        # Compiled functions have no code.
        code = getattr(function, "__code__", None)
        file, line = ("<unknown>", 1) if code is None else (code.co_filename, code.co_firstlineno)
        # ``warnings.warn`` would look for the function's module in the stack, which has no frame of it in an event
        # loop. So the module's registry, which notes the warnings that were shown, is passed here.
        registry = getattr(function, "__globals__", {}).setdefault("__warningregistry__", {})
        warnings.warn_explicit(message, HandlerTransactionWarning, file, line, function.__module__, registry)


def call_in_session(held: HeldDelivery, handler: Handler, around: ForkGuard) -> Decisions:
    """Call a handler with a session whose COMMIT settles the delivery; for an AsyncSession, call this in a greenlet.

    After a serialization failure or a deadlock on the session's connection, call the handler again, up to four times in
    all. Each call gets the delivery as it was enqueued, even if an earlier call has changed it.
    """
    headers = [deepcopy(one.delivery.headers) for one in held.batch]
    left = _TRIES
    options = held.queue.options
    sessions = options.session_factory if handler.asynchronous else options.sync_session_factory
    assert sessions is not None  # noqa: S101 - the worker has checked it
    while True:
        made = sessions()
        session = made.sync_session if isinstance(made, AsyncSession) else made
        check = CommitCheck(held, handler)
        try:
            guard(session, check)
            context = Context(held, made, held.queue.resources)
            with around:
                result = bound_call(handler, held, context)()
                if handler.asynchronous:
                    result = await_only(finished(result))
            check.returned = True
            decisions = _settle_in(session, held, decide_on_return(held, handler, result))
            # Hooks of the COMMIT see the context variables of the handler, though its middleware has ended.
            (variables_of(context) or copy_context()).run(session.commit)
        except Exception as error:
            left -= 1
            if not left or held.lost or error not in check.failures or not is_serialization_failure(error):
                raise
            for one, before in zip(held.batch, headers, strict=True):
                one.begin_again(deepcopy(before))
        else:
            return decisions
        finally:
            guard(session, None)
            # The connection keeps the check, and the errors' tracebacks would keep the connection.
            check.failures.clear()
            if isinstance(made, AsyncSession):
                # A cancelled commit must not leave its connection behind. An eager task would begin in this greenlet.
                await_only(asyncio.shield(asyncio.Task(made.close())))
            else:
                made.close()


def _settle_in(session: Session, held: HeldDelivery, decisions: list[Decision]) -> list[Decision]:
    """Record *decisions* on *session*. Return how its COMMIT settles each delivery.

    If the handler settled a delivery on *session* itself, the handler's verb holds instead of the decision.
    """
    own = {one.delivery: one for one in reversed(recorded(session)) if isinstance(one, Settle)}
    made, operations = [], []
    for one, decision in zip(held.batch, decisions, strict=True):
        if (by_verb := own.get(one.delivery)) is not None:
            asked = Decision(by_verb.verb, by_verb.delay, by_verb.reason, by_verb.error)
            made.append(of_own_verb(asked, one.delivery))
            continue
        made.append(replace(decision, sent=True))
        operations.append(decision.operation(one.queue.target, one.delivery, one.measured_cost, one.stop_charging()))
    if operations:
        record(session, operations)
    return made


def decide_on_return(held: HeldDelivery, handler: Handler, result: object) -> list[Decision]:
    values = [result] if handler.batch is None else results_of_batch(result, len(held.batch))
    return [_of_value(one, handler, result, value) for one, value in zip(held.batch, values, strict=True)]


def _of_value(held: HeldDelivery, handler: Handler, result: object, value: object) -> Decision:
    asked = held.first.outcomes.get(held.delivery.message_id, result)
    decision = of_return(asked, held.delivery, held.queue.policy(handler.kind))
    if not held.delivery.keeps_result or decision is not COMPLETE:
        return decision
    kept = encoded_result(held.queue.queue.codec, handler.schema, value)
    if kept.problem is not None:
        held.log(logging.WARNING, f"is completed, and what its handler returned is not kept: {kept.problem}")
    return Decision(Verb.COMPLETE, result=kept)


def decide_on_failure(held: HeldDelivery, error: BaseException) -> Decision:
    try:
        return _decide(held, error)
    except BaseException as again:  # noqa: BLE001 - the error's own code may raise anything
        trouble = WorkerError(
            f"a {type(error).__name__} failed while it was examined: {type(again).__name__}: {said(again)}"
        )
        _log(logging.ERROR, held, trouble)
        return of_error(trouble, held.delivery, RetryPolicy())


def _decide(held: HeldDelivery, error: BaseException) -> Decision:
    if isinstance(error, NotCalled):
        return error.decision
    if held.cancelled or (isinstance(error, MessageCancelled) and error.message_id == held.delivery.message_id):
        # A release deletes a message that was cancelled.
        return RELEASE
    if held.given_up and isinstance(error, LeaseLost):
        # No log line, since the stop has logged this delivery.
        return LOST
    decision = of_error(error, held.delivery, held.queue.policy(held.delivery.kind))
    if not isinstance(error, Outcome):
        level = logging.ERROR if isinstance(error, WorkerError) else logging.WARNING
        _log(level, held, error, decision)
    return decision


def _log(level: int, held: HeldDelivery, error: BaseException, decision: Decision | None = None) -> None:
    # A traceback is too long for a log, so the line shows the command that prints it.
    shown = ""
    if decision is not None and decision.error is not None:
        noun = "dead" if decision.verb is Verb.BURY else "messages"
        shown = f"; traceback: fairqueue {noun} show {held.delivery.message_id} {held.queue.reference}"
    attempt = f"attempt {held.delivery.attempt} of {held.max_attempts}"
    name = "" if isinstance(error, RemoteError) else f"{type(error).__name__}: "
    held.log(level, f"failed at {attempt}: {name}{logged(error)}{shown}")
