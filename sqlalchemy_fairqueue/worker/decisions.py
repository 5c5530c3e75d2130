"""Decisions on how a worker settles a delivery, given how its handler finished. No I/O."""

from __future__ import annotations

import inspect
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure
from sqlalchemy_fairqueue.errors import HandlerCrashed, HandlerTimeout, LeaseLost, WorkerError
from sqlalchemy_fairqueue.unit_of_work.settlements import Settle, Verb
from sqlalchemy_fairqueue.values.checks import check_duration, check_text
from sqlalchemy_fairqueue.values.outcomes import Bury, Outcome, Release, Retry, RetryPolicy

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.database.deliveries import EncodedResult
    from sqlalchemy_fairqueue.errors import PayloadError
    from sqlalchemy_fairqueue.values.messages import Delivery

# Characters of a traceback: a message that fails in a deep recursion must not fill the table.
_MOST = 16_000
# Modules whose frames call handlers. The last one has those of greenlets.
_OURS = ("sqlalchemy_fairqueue.worker", "sqlalchemy_fairqueue.queue.jobs", "sqlalchemy.util")
_CIRCUMSTANCES = (HandlerCrashed, HandlerTimeout, LeaseLost, WorkerError)
# When a delivery is tried again that the database refuses to settle.
_FALLBACK = RetryPolicy()
# How often a message of an unknown kind is given back uncounted, to workers that may know it: with the default policy
# that takes three quarters of an hour, give or take. A deploy is over by then; and a kind that nobody knows must end.
UNKNOWN_KIND_RELEASES = 15


@dataclass(frozen=True, slots=True)
class Decision:
    """A verb and its arguments.

    Attributes:
        verb: How to settle the delivery.
        delay: For retry and release.
        reason: For bury.
        error: For retry and bury.
        sent: The handler's own transaction has settled it so.
        result: For complete: what is kept of it. None: None.
    """

    verb: Verb
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None
    sent: bool = False
    result: EncodedResult | None = None

    def __post_init__(self) -> None:
        """Keep what can be sent, or refuse: a policy or an outcome of the application's own may say anything."""
        if self.delay is not None:
            object.__setattr__(self, "delay", check_duration("delay", self.delay))
        for what, text in ("reason", self.reason), ("error", self.error):
            if text is not None:
                object.__setattr__(self, what, check_text(what, text))

    def operation(
        self, target: Target, delivery: Delivery, cost: int | None = None, charged: int | None = None
    ) -> Settle:
        """The operation that settles a delivery so.

        Args:
            target: Its queue.
            delivery: The delivery.
            cost: What the attempt cost. None: as it was charged.
            charged: Up to what its channel was charged while its handler ran. None: it was not.
        """
        return Settle(target, self.verb, delivery, self.delay, self.reason, self.error, cost, charged, self.result)

    def in_ascii(self) -> Decision:
        """The same, with texts in ASCII, which every encoding has bytes for."""
        return replace(self, reason=_ascii(self.reason), error=_ascii(self.error))

    @property
    def result_bytes(self) -> int:
        """The number of bytes that are kept."""
        return 0 if self.result is None else len(self.result.content or b"")

    def as_sent(self) -> Decision:
        """The same, sent by the handler's transaction."""
        return replace(self, sent=True)


COMPLETE = Decision(Verb.COMPLETE)
COMPLETED = COMPLETE.as_sent()
RELEASE = Decision(Verb.RELEASE)


class RemoteError(Exception):
    """An exception that a handler raised in a child process.

    Args:
        summary: Its name and what it says.
        text: The same with its traceback.
        classes: The names of its class and of those that it is derived from, its own first (see :func:`classes_of`).
        circumstance: Whether it is not the handler's doing (see :func:`is_circumstance`).
    """

    def __init__(self, summary: str, text: str, classes: tuple[str, ...] = (), *, circumstance: bool = False) -> None:
        super().__init__(summary, text, classes)
        self.text = text
        self.classes = classes
        self.circumstance = circumstance

    def __str__(self) -> str:
        """Its name and what it says."""
        return str(self.args[0])


def returned_outcome(result: object) -> Outcome | None:
    """Return the outcome that a handler returned, or whose class it returned; None for any other value, which is done.

    Raises:
        WorkerError: It is a generator or an awaitable, so that nothing was done.
        TypeError: It is the class of an outcome that needs an argument.
        Outcome: It is none of those that say what to do.
    """
    if isinstance(result, type) and issubclass(result, Outcome):
        result = result()
    if isinstance(result, (Retry, Release, Bury)):
        return result
    if isinstance(result, Outcome):
        raise result
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise WorkerError(
            "the handler returned a generator, which nobody runs: nothing was done; do not yield in it, nor in what it "
            "is wrapped around"
        )
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise WorkerError(
            "the handler returned an awaitable, which nobody awaits here: nothing was done; let it do the work "
            "itself, by asyncio.run if need be, or make it an async function, which needs an AsyncWorker"
        )
    return None


def of_return(result: object, delivery: Delivery, policy: RetryPolicy) -> Decision:
    """Return the decision that a returned value asks for.

    Raises:
        WorkerError, TypeError: As :func:`returned_outcome`.
    """
    outcome = returned_outcome(result)
    return COMPLETE if outcome is None else of_error(outcome, delivery, policy)


def of_own_verb(
    verb: Verb,
    delivery: Delivery,
    delay: timedelta | None = None,
    reason: str | None = None,
    error: str | None = None,
) -> Decision:
    """The decision of a handler that has used a verb itself: a retry of the last attempt makes a dead letter."""
    if verb is Verb.RETRY and delivery.attempt >= delivery.max_attempts:
        return Decision(Verb.BURY, reason="attempts exhausted", error=error, sent=True)
    return Decision(verb, delay, reason or "its handler said so", error, sent=True)


def of_error(error: BaseException, delivery: Delivery, policy: RetryPolicy) -> Decision:
    """Return the decision that an outcome asks for; after another exception, a later attempt or a dead letter."""
    match error:
        case Release():
            return Decision(Verb.RELEASE, error.delay)
        case Bury():
            return Decision(Verb.BURY, reason=error.reason, error=cause_of(error))
        case Retry():
            return _again(delivery, policy, error.delay, cause_of(error) if error.error is None else error.error)
    if _is_buried(error, policy):
        return Decision(Verb.BURY, reason=_bury_reason(error), error=text_of(error))
    return _again(delivery, policy, None, text_of(error))


def outcome_of(error: BaseException, policy: RetryPolicy) -> Outcome | None:
    """The outcome that a policy names for an exception, raised from it. None: it names none, and a test shall see it.

    An exception that is buried because ``retry_on`` does not name it is one that nobody expects.
    """
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
    """The names of the class of an exception and of those that it is derived from, the same in every process."""
    return tuple(map(_name, type(error).__mro__))


def is_circumstance(error: BaseException) -> bool:
    """Return whether an exception that ended an attempt is not the handler's doing, so that ``retry_on`` passes it."""
    if isinstance(error, RemoteError):
        return error.circumstance
    return isinstance(error, _CIRCUMSTANCES) or is_away(error) or is_serialization_failure(error)


def _is_buried(error: BaseException, policy: RetryPolicy) -> bool:
    if _is_any(error, policy.bury_on):
        return True
    if policy.retry_on is None or _is_any(error, policy.retry_on):
        return False
    return not is_circumstance(error)


def _is_any(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, RemoteError):
        return any(_name(one) in error.classes for one in classes)
    return isinstance(error, classes)


def _name(of: type) -> str:
    # A child process has the main module under another name.
    return f"{of.__module__.replace('__mp_main__', '__main__')}.{of.__qualname__}"


def _bury_reason(error: BaseException) -> str:
    name = error.classes[0].rpartition(".")[2] if isinstance(error, RemoteError) else type(error).__name__
    return f"not retried: {name:.200}"


def of_undecodable(error: PayloadError) -> Decision:
    """The decision for a payload that the codec cannot decode: trying again would not help."""
    return Decision(Verb.BURY, reason=f"its payload cannot be decoded: {check_text('error', str(error))}"[:1000])


def of_unknown(error: WorkerError, delivery: Delivery, policy: RetryPolicy) -> Decision:
    """The decision for a kind without a handler: it is left to other workers, ever later, and fails in the end.

    At first no attempt is counted: a worker that is about to be replaced must not use up the attempts of a new kind.
    """
    uncounted = delivery.deliveries - delivery.attempt
    if uncounted < UNKNOWN_KIND_RELEASES:
        return Decision(Verb.RELEASE, policy.delay(uncounted + 1))
    return of_error(error, delivery, policy)


def of_exhausted(delivery: Delivery, limit: int) -> Decision:
    """The decision for a delivery beyond its limit: a worker that had the message before did not settle it."""
    last = delivery.attempt - 1
    before = f"attempt {limit}" if last == limit else f"attempts {limit} to {last}"
    return Decision(
        Verb.BURY,
        reason=f"attempts exhausted: the limit is {limit}, and {before} ended without a word: the process died, "
        "the lease was lost, or the limit was higher then",
    )


def fallback(decision: Decision, delivery: Delivery) -> Decision | None:
    """The next best decision on a delivery that the database refused to settle; None: there is none.

    First another attempt, which counts, so that attempts come to an end; then to give it back, ever later.
    """
    match decision.verb:
        case Verb.RELEASE:
            return None
        case Verb.RETRY if decision.error is None:
            return Decision(Verb.RELEASE, _FALLBACK.delay(delivery.deliveries))
    return Decision(Verb.RETRY, decision.delay or _FALLBACK.delay(delivery.attempt))


def limit_of(delivery: Delivery, policy: RetryPolicy) -> int:
    """The number of attempts after which a message is a dead letter: its own or the policy's, whichever is lower."""
    own = delivery.max_attempts
    return own if policy.max_attempts is None else min(own, policy.max_attempts)


def _again(delivery: Delivery, policy: RetryPolicy, delay: timedelta | None, error: str | None) -> Decision:
    limit = limit_of(delivery, policy)
    if delivery.attempt >= limit:
        # The dead letter has the message's own limit beside this reason.
        whose = "" if limit == delivery.max_attempts else f": the policy's limit is {limit}"
        return Decision(Verb.BURY, reason=f"attempts exhausted{whose}", error=error)
    return Decision(Verb.RETRY, policy.delay(delivery.attempt) if delay is None else delay, error=error)


def text_of(error: BaseException) -> str:
    """An exception with its traceback, from the handler on, as text that can be kept."""
    if isinstance(error, RemoteError):
        return check_text("error", error.text)
    trace = error.__traceback__
    # The frames of this package tell nothing about the handler.
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_globals.get("__name__")):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]}\n[...]\n{text[-_MOST // 2 :]}"
    return check_text("error", text)


def _ascii(text: str | None) -> str | None:
    return None if text is None else text.encode("ascii", "backslashreplace").decode()


def cause_of(outcome: BaseException) -> str | None:
    """The exception that an outcome was raised from, as text."""
    cause = outcome.__cause__ or outcome.__context__
    return None if cause is None else text_of(cause)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.startswith(_OURS)
