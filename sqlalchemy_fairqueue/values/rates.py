"""Rates: most messages in a time, as one value and as text (``50/s``, ``100/min``, ``1/30s``, ``50/s, burst 10``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Final, cast

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import UNITS, parsed_duration
from sqlalchemy_fairqueue.values.checks import check_count, check_duration

_SECOND: Final = timedelta(seconds=1)
# How late a consumer may come without a loss, unless the burst is given.
_LATE = timedelta(milliseconds=100)
_MOST_BURST = 1_000_000
# The units that people write behind "per", beside those of durations.
_WORDS: Final = {
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(\w+)(?:\s*,\s*burst\s+(\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """Most messages in a time: on average *count* each *per*, at most *burst* in a row.

    It is exact: in any time of length t at most burst + t * count / per messages are delivered (generic cell rate
    algorithm, ITU-T I.371). Two rates are equal if their interval and burst are, however they were written.

    Attributes:
        count: Messages in a time of *per*; a fraction is fine.
        per: The time. per / count is from 1 microsecond to 365 days, and is rounded to microseconds.
        burst: Messages that may come in a row before the rate applies, up to a million. None: those of a tenth of a
            second, and at least 1. A smaller burst costs throughput: the channel loses each moment in which a consumer
            comes late (with a burst of 1: 4 % at 10 messages/s, 16 % at 50).

    Raises:
        InvalidArgument: A value cannot be kept.

    Example:
        >>> rate = Rate(50, per=timedelta(seconds=1), burst=10)
        >>> rate == Rate.parse("50/s, burst 10") == Rate.of(rate.interval, rate.burst)
        True
        >>> rate.per_time()
        '50/s'
    """

    count: float
    per: timedelta = _SECOND
    burst: int = cast("int", None)

    if TYPE_CHECKING:

        def __init__(self, count: float, per: timedelta = ..., burst: int | None = None) -> None: ...

    def __post_init__(self) -> None:
        """Refuse what cannot be kept, and settle the burst."""
        count: object = self.count
        if not isinstance(count, int | float) or isinstance(count, bool) or not 0 < count < inf:
            raise InvalidArgument(f"the count of a rate is {self.count!r:.80}; give a number above 0, such as 50")
        object.__setattr__(self, "per", check_duration("the time of a rate", self.per))
        try:
            interval = self.interval
        except OverflowError:
            raise InvalidArgument(
                "the time between two messages of a rate is longer than 365 days; give a higher count"
            ) from None
        if not interval:
            raise InvalidArgument(
                f"a rate of {self.count!r:.80} in {self.per} is more than a million a second; "
                "give a lower one, or None for no limit"
            )
        check_duration("the time between two messages of a rate", interval)
        if cast("int | None", self.burst) is None:
            object.__setattr__(self, "burst", min(max(1, _LATE // interval), _MOST_BURST))
        check_count("the burst of a rate", self.burst, 1, _MOST_BURST)
        # The database adds up what a whole burst takes.
        check_duration("the interval times the burst of a rate", interval * self.burst)

    @property
    def interval(self) -> timedelta:
        """The least time between two messages on average, in whole microseconds."""
        return self.per / self.count

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Parse a rate as people write it: ``10/s``, ``100/min``, ``1/30s``, ``50/s, burst 10``.

        The time is a unit (``us``, ``ms``, ``s``, ``m``, ``h``, ``d``, ``w``), its word (``sec``, ``second``, ``min``,
        ``minute``, ``hour``, ``day``, ``week``) or a duration such as ``30s``.

        Raises:
            InvalidArgument: The text has another form, or the rate cannot be kept.
        """
        found = _TEXT.fullmatch(text.strip().lower())
        problem = f"{text!r:.80} is no rate; give one like 10/s, 100/min, 1/30s or '50/s, burst 10'"
        if found is None or not float(found[1]):
            raise InvalidArgument(problem)
        try:
            unit = _WORDS.get(found[2], found[2])
            per = UNITS[unit] if unit in UNITS else parsed_duration(unit)
        except ValueError:
            raise InvalidArgument(problem) from None
        if not per:
            raise InvalidArgument(problem)
        return cls(float(found[1]), per, None if found[3] is None else int(found[3]))

    @classmethod
    def of(cls, interval: timedelta, burst: int) -> Rate | None:
        """Return the rate with this time between two messages; None, no limit, if the time is zero or less."""
        return cls(1, interval, burst) if interval > timedelta() else None

    def per_time(self) -> str:
        """Write the rate without its burst, in the smallest unit that has at least one message: ``50/s``, ``1/30d``."""
        for unit in ("s", "m", "h", "d"):
            if UNITS[unit] >= self.interval:
                return f"{UNITS[unit] / self.interval:.6g}/{unit}"
        return f"1/{self.interval / UNITS['d']:.6g}d"

    def __str__(self) -> str:
        """The text that :meth:`parse` takes, rounded to six digits."""
        if self.burst == Rate(1, self.interval).burst:
            return self.per_time()
        return f"{self.per_time()}, burst {self.burst}"

    def __eq__(self, other: object) -> bool:
        """Whether interval and burst are the same."""
        if not isinstance(other, Rate):
            return NotImplemented
        return (self.interval, self.burst) == (other.interval, other.burst)

    def __hash__(self) -> int:
        """By interval and burst."""
        return hash((self.interval, self.burst))


def checked_rate(what: str, value: object) -> Rate | None:
    """Return a rate, given as such or as text; None means no limit.

    Raises:
        InvalidArgument: It is something else, or cannot be kept.
    """
    if value is None or isinstance(value, Rate):
        return value
    if isinstance(value, str):
        return Rate.parse(value)
    example = f"Rate({value}) or '{value}/s'" if isinstance(value, int | float) else "Rate(50) or '50/s'"
    raise InvalidArgument(f"{what} is {value!r:.80}; give a Rate, its text, or None for no limit, such as {example}")
