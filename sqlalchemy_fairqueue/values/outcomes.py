"""Outcomes of handlers other than completion, and retry policies."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values.checks import check_count, check_duration, check_text

if TYPE_CHECKING:
    from collections.abc import Callable


class Outcome(Exception):
    """An outcome that a handler asks for, by raising or by returning it; it decides how the delivery is settled.

    The handler's session, if it has one, rolls back if the outcome is raised, and commits if it is returned. Outcomes
    of one class with equal arguments are equal. A subclass of Retry, Release or Bury settles as its base class does.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Outcome):
            return NotImplemented
        return type(self) is type(other) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self._compared()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the attributes, since the arguments of a subclass are not known here."""
        return _made_again, (type(self), self.args), vars(self)

    def _compared(self) -> tuple[object, ...]:
        return self.args


def _made_again(kind: type[Outcome], args: tuple[object, ...]) -> Outcome:
    made = kind.__new__(kind)
    made.args = args
    return made


class Retry(Outcome):
    """Try the message again later, and count the attempt. After the last attempt the message becomes a dead letter.

    Args:
        delay: How long to wait at least. None: as the retry policy says.
        error: The text to keep with the message. None: the exception that this outcome was raised from, if any.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> Retry | None:
        ...     return Retry(delay=timedelta(minutes=1), error="busy") if delivery.payload == "busy" else None
        >>> perform(queue, "busy", kind="call").error
        'busy'
    """

    # Defaults for subclasses that do not call __init__, or that set them for all of their outcomes.
    delay: timedelta | None = None
    error: str | None = None

    def __init__(self, *, delay: timedelta | None = None, error: str | None = None) -> None:
        if delay is not None:
            self.delay = check_duration("delay", delay)
        if error is not None:
            self.error = check_text("error", error)
        super().__init__(
            f"try again{'' if delay is None else f' after {self.delay}'}{'' if error is None else f': {self.error}'}"
        )

    def _compared(self) -> tuple[object, ...]:
        return self.delay, self.error


class Release(Outcome):
    """Give the message back without counting the attempt.

    Args:
        delay: How long to wait at least. None: no wait; the message keeps its place in the channel.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> Release:
        ...     return Release(delay=timedelta(seconds=10))
        >>> isinstance(perform(queue, 1, kind="call"), Release)
        True
    """

    # A default, as in Retry.
    delay: timedelta | None = None

    def __init__(self, *, delay: timedelta | None = None) -> None:
        if delay is not None:
            self.delay = check_duration("delay", delay)
        super().__init__(f"give back{'' if delay is None else f' for {self.delay}'}")

    def _compared(self) -> tuple[object, ...]:
        return (self.delay,)


class Bury(Outcome):
    """Make the message a dead letter.

    Args:
        reason: Shown with the dead letter.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> None:
        ...     raise Bury("there is no such number")
        >>> perform(queue, 1, kind="call").reason
        'there is no such number'
    """

    # A default, as in Retry.
    reason: str = "its handler said so"

    def __init__(self, reason: str) -> None:
        self.reason = check_text("reason", reason)
        super().__init__(self.reason)

    def _compared(self) -> tuple[object, ...]:
        return (self.reason,)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which failed messages are tried again, and when: exponential backoff with jitter.

    The wait is random, so that messages which failed together do not come back together. Source: M. Brooker,
    "Exponential Backoff and Jitter", 2015. A retried message goes behind messages of its channel that were due earlier.
    If it has a priority, it goes to the place of its priority.

    Attributes:
        first: The longest wait after the first attempt.
        factor: How many times longer the longest wait becomes with each further attempt.
        cap: No wait is longer.
        jitter: How much of the longest wait is left to chance, 0 to 1. 1: all of it, so a wait may be zero ("full
            jitter"). 0.2: a wait is at least 80 % of the longest. 0: each wait is the longest.
        max_attempts: A message becomes a dead letter after this many attempts, or after its own ``max_attempts`` if
            that is lower. An attempt whose process died or whose lease was lost counts. None: only the message's own.
        bury_on: Exceptions, with subclasses, that make the message a dead letter at once.
        retry_on: The only exceptions of a handler, with subclasses, that are retried; others make the message a dead
            letter at once. A timeout, a crashed child process, a failed serialization, and a database that is away or
            busy are retried even if retry_on does not name them. What ``bury_on`` names is never retried. None: all
            exceptions that ``bury_on`` does not name.

    Example:
        >>> policy = RetryPolicy(first=timedelta(seconds=5), factor=2, max_attempts=8, bury_on=(ValueError,))
        >>> @queue.handler("call", retry=policy)
        ... def call(delivery: Delivery) -> None:
        ...     int(delivery.payload["number"])
        >>> perform(queue, {"number": "twelve"}, kind="call").reason
        'not retried: ValueError'
    """

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=15)
    jitter: float = 1.0
    max_attempts: int | None = None
    bury_on: tuple[type[BaseException], ...] = ()
    retry_on: tuple[type[BaseException], ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", check_duration("first", self.first))
        object.__setattr__(self, "cap", check_duration("cap", self.cap))
        if self.first > self.cap:
            raise InvalidArgument(
                f"first is {self.first} and cap is {self.cap}, and no wait is longer than cap; give a cap that is at "
                "least as long"
            )
        _check_number("factor", self.factor, 1, 1000)
        _check_number("jitter", self.jitter, 0, 1)
        if self.max_attempts is not None:
            check_count("max_attempts", self.max_attempts, 1, 2**31 - 1)
        _check_exceptions("bury_on", self.bury_on)
        if self.retry_on is not None:
            _check_exceptions("retry_on", self.retry_on)
            for one in self.retry_on:
                if issubclass(one, self.bury_on):
                    raise InvalidArgument(
                        f"retry_on names {one.__name__}, which bury_on buries, itself or a class that it is derived "
                        "from; leave it out of one of the two"
                    )

    def delay(self, attempt: int, chance: Callable[[], float] = random.random) -> timedelta:
        """Return the wait after the *attempt*-th attempt. *chance* returns 0 (longest wait) to 1 (shortest wait).

        Example:
            >>> policy = RetryPolicy(first=timedelta(seconds=5), factor=2)
            >>> [str(policy.delay(attempt, chance=lambda: 0)) for attempt in (1, 2, 3)]
            ['0:00:05', '0:00:10', '0:00:20']
        """
        cap = self.cap / self.first if self.first else 0.0
        # The power for a large attempt number does not fit a float.
        is_capped = cap <= 1 or (attempt - 1) * math.log(self.factor) >= math.log(cap)
        grown = cap if is_capped else self.factor ** (attempt - 1)
        return self.first * min(cap, grown) * (1 - self.jitter * chance())


def _check_exceptions(what: str, classes: object) -> None:
    if not isinstance(classes, tuple):
        raise InvalidArgument(f"{what} is {classes!r:.80}; give a tuple of exception classes, such as (ValueError,)")
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, BaseException):
            raise InvalidArgument(f"{what} has {one!r:.80}; give classes of exceptions, such as (ValueError,)")
        if issubclass(one, Outcome):
            raise InvalidArgument(f"{what} has {one.__name__}, which is an outcome of its own; leave it out")


def _check_number(what: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InvalidArgument(f"{what} is {value!r:.80}; give a number from {least} to {most}")
