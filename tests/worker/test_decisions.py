"""Decisions on how a delivery is settled, given how its handler finished; and the delays of failed ones."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_fairqueue import Bury, HandlerTimeout, InvalidArgument, Queue, Release, Retry, RetryPolicy
from sqlalchemy_fairqueue.errors import HandlerCrashed, WorkerError
from sqlalchemy_fairqueue.testing import make_delivery
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from sqlalchemy_fairqueue.values.messages import Delivery
from sqlalchemy_fairqueue.worker.handling import UNKNOWN_KIND_RELEASES, of_error, of_return, of_unknown
from sqlalchemy_fairqueue.worker.leases import COMPLETE

_POLICY = RetryPolicy(jitter=0)


def _delivery(attempt: int = 1, uncounted: int = 0) -> Delivery:
    delivery = make_delivery(Queue("q"), 1, attempt=attempt, max_attempts=20)
    return replace(delivery, deliveries=attempt + uncounted)


def _fail(error: Exception, cause: Exception | None = None) -> None:
    raise error from cause


@pytest.mark.parametrize("result", [None, 0, iter("ab"), ["not one"], ValueError("not raised")])
def test_any_result_means_done(result: object) -> None:
    """What is no outcome and has none in it is ignored."""
    assert of_return(result, _delivery(), _POLICY) is COMPLETE


def test_an_exception_is_kept_with_its_traceback() -> None:
    """An error goes with the message, in full, and NUL characters cannot stop it."""
    with pytest.raises(ValueError, match="odd") as raised:
        _fail(ValueError("odd\x00value"))
    decision = of_error(raised.value, _delivery(attempt=3), _POLICY)
    assert decision.verb is Verb.RETRY
    assert decision.delay == timedelta(seconds=4)
    assert decision.error is not None
    assert "ValueError: odd\ufffdvalue" in decision.error
    assert "test_decisions" in decision.error


def test_an_outcome_keeps_what_it_was_raised_from() -> None:
    """Retry and Bury raised from an exception keep that one's traceback."""
    for made in (Retry(), Bury("why")):
        with pytest.raises(type(made)) as raised:
            _fail(made, KeyError("inner"))
        assert "KeyError" in (of_error(raised.value, _delivery(), _POLICY).error or "")


def test_attempts_of_the_policy() -> None:
    """A policy may give up before the message's own max_attempts."""
    policy = RetryPolicy(max_attempts=3)
    assert of_error(ValueError("x"), _delivery(attempt=2), policy).verb is Verb.RETRY
    assert of_error(ValueError("x"), _delivery(attempt=3), policy).verb is Verb.BURY
    assert of_return(Retry(delay=timedelta(1)), _delivery(attempt=3), policy).verb is Verb.BURY
    assert of_return(Release(), _delivery(attempt=3), policy).verb is Verb.RELEASE
    # Its own is lower.
    assert of_error(ValueError("x"), _delivery(attempt=20), RetryPolicy(max_attempts=30)).verb is Verb.BURY


def test_exceptions_that_are_buried_at_once() -> None:
    """By bury_on and its subclasses, with a reason and the traceback; others are retried, outcomes mean themselves."""
    policy = RetryPolicy(bury_on=(LookupError, HandlerTimeout))
    decision = of_error(KeyError("x"), _delivery(), policy)
    assert (decision.verb, decision.reason) == (Verb.BURY, "not retried: KeyError")
    assert "KeyError: 'x'" in (decision.error or "")
    assert of_error(HandlerTimeout(1, "k"), _delivery(), policy).verb is Verb.BURY
    assert of_error(ValueError("x"), _delivery(), policy).verb is Verb.RETRY
    assert of_error(Retry(), _delivery(), policy).verb is Verb.RETRY


def test_the_only_exceptions_that_are_retried() -> None:
    """By retry_on all others of the handler are buried, and bury_on goes first; mishaps around it are retried."""
    policy = RetryPolicy(retry_on=(OSError,), bury_on=(FileNotFoundError,))
    raised = (ConnectionError(), FileNotFoundError(), KeyError("x"), SystemExit(1))
    verbs = [of_error(error, _delivery(), policy).verb for error in raised]
    assert verbs == [Verb.RETRY, Verb.BURY, Verb.BURY, Verb.BURY]
    lost = DBAPIError("select 1", None, Exception("gone"), connection_invalidated=True)
    away, full = OperationalError("", None, Exception("connection refused")), PoolTimeout("the pool is full")
    for mishap in (HandlerTimeout(1, "k"), HandlerCrashed(1, "k", -9), WorkerError("no child"), lost, away, full):
        assert of_error(mishap, _delivery(), policy).verb is Verb.RETRY
    assert of_error(ConnectionError(), _delivery(attempt=20), policy).verb is Verb.BURY
    assert of_error(OSError(), _delivery(), RetryPolicy(retry_on=())).verb is Verb.BURY


def test_an_unknown_kind_is_left_to_others() -> None:
    """Uncounted and ever later, whatever limits say, for longer than a deploy takes; then it counts."""
    error, policy = WorkerError("no handler"), RetryPolicy(jitter=0, max_attempts=3)
    waits = []
    for uncounted in range(UNKNOWN_KIND_RELEASES):
        decision = of_unknown(error, _delivery(3, uncounted), policy)
        assert decision.verb is Verb.RELEASE
        assert decision.delay is not None
        waits.append(decision.delay)
    assert waits[:3] == [timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=4)]
    # Without chance, which halves it on average.
    assert sum(waits, timedelta()) > timedelta(minutes=90)
    assert of_unknown(error, _delivery(2, UNKNOWN_KIND_RELEASES), policy).verb is Verb.RETRY
    assert of_unknown(error, _delivery(3, UNKNOWN_KIND_RELEASES), policy).verb is Verb.BURY


@example(2**31 - 1, 0.0, 0.0, 1.0000000000000002)
@given(st.integers(1, 2**31 - 1), st.floats(0, 1), st.floats(0, 1), st.floats(1, 1000))
def test_delays_are_bounded(attempt: int, jitter: float, chance: float, factor: float) -> None:
    """Whatever the attempt and the dice, a delay is between nothing and the cap."""
    policy = RetryPolicy(jitter=jitter, factor=factor)
    assert timedelta() <= policy.delay(attempt, lambda: chance) <= policy.cap


def test_delays_grow() -> None:
    """Delays double, up to the cap; jitter takes its share off."""
    policy = RetryPolicy(first=timedelta(seconds=1), cap=timedelta(seconds=5))
    assert [policy.delay(n, lambda: 0.0).total_seconds() for n in range(1, 6)] == [1, 2, 4, 5, 5]
    assert policy.delay(2, lambda: 0.5) == timedelta(seconds=1)
    assert RetryPolicy(first=timedelta()).delay(7) == timedelta()


@pytest.mark.parametrize(
    "wrong",
    [
        {"factor": 0.5},
        {"jitter": 2},
        {"first": 1},
        {"max_attempts": 0},
        {"bury_on": ValueError},
        {"bury_on": ("ValueError",)},
        {"retry_on": (int,)},
        {"retry_on": (Retry,)},
        {"retry_on": (KeyError,), "bury_on": (LookupError,)},
    ],
)
def test_bad_policies(wrong: dict[str, object]) -> None:
    """A policy that makes no sense is refused, and so is one with exceptions that could never be retried."""
    with pytest.raises(InvalidArgument, match=f"^{next(iter(wrong))}"):
        RetryPolicy(**wrong)  # type: ignore[arg-type]  # that is the point
