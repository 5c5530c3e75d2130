"""Rates, and the sorts of fields that people set: how a value of each is checked, parsed, shown and stored."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from datetime import timedelta
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import UNITS, duration, microseconds, parsed_duration
from sqlalchemy_fairqueue.values.checks import check_choice, check_count, check_duration, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance


_SECOND: Final = timedelta(seconds=1)
# Unless the burst is given, a consumer may come this late without losing throughput.
_LATE = timedelta(milliseconds=100)
_MOST_BURST = 1_000_000_000
# Units that people write after the slash of a rate, in addition to those of durations.
_WORDS: Final = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_TEXT = re.compile(
    r"(\d+(?:\.\d+)?)\s*/\s*([\w.]+)(?:\s+of\s+(messages|cost))?(?:\s*,\s*burst\s+(\d{1,20}))?", re.ASCII
)


RateUnit = Literal["messages", "cost"]


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """The most messages, or the most cost, in a time: on average *count* each *per*, at most *burst* in a row.

    The limit is exact: in any time t, at most ``burst + t * count / per`` messages are delivered (generic cell rate
    algorithm, ITU-T I.371). A rate of cost bounds what the messages cost in the same way, but the last message may
    exceed the bound by its own cost. If a settlement corrects a cost, the corrected cost counts. Two rates are
    equal if they have equal :attr:`interval`, *burst* and *of*.

    Attributes:
        count: Messages or cost in each *per*; fractions are allowed.
        per: The time that *count* is for, up to 365 days. per / count, in whole microseconds, must be 1 us to 365 days.
        burst: Messages or cost that may come in a row, 1 to a billion, but no more than the rate allows in 365 days.
            None: what the rate allows in 0.1 s, at least 1. A smaller burst loses throughput, since consumers come a
            little late: a burst of 1 loses 16 % at 50/s.
        of: "messages" or "cost". The cost of a message is what ``enqueue(cost=)`` declares, by default 1; in a queue
            that is fair by seconds, it is the milliseconds that the handler takes.

    Example:
        >>> rate = Rate(50, per=timedelta(seconds=1), burst=10)
        >>> rate == Rate.parse("50/s, burst 10") == Rate.every(rate.interval, rate.burst)
        True
        >>> rate.per_time(), str(Rate(100_000, per=timedelta(minutes=1), of="cost"))
        ('50/s', '100000/m of cost')
    """

    count: float
    per: timedelta = _SECOND
    burst: int = cast("int", None)
    of: RateUnit = "messages"

    if TYPE_CHECKING:

        def __init__(
            self, count: float, per: timedelta = ..., burst: int | None = None, of: RateUnit = ...
        ) -> None: ...

    def __post_init__(self) -> None:
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
        # The database computes the time of a whole burst, so that time has a bound, too.
        check_duration("the interval times the burst of a rate", interval * self.burst)
        check_choice("what a rate is of", self.of, ("messages", "cost"))

    @property
    def interval(self) -> timedelta:
        """The average time from one message, or unit of cost, to the next, in whole microseconds."""
        return self.per / self.count

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Parse a rate as people write it: ``10/s``, ``100/min``, ``1/30s``, ``50/s, burst 10``, ``1000/min of cost``.

        The time is a unit from ``us`` to ``w``, a word such as ``sec`` or ``hour``, or a duration such as ``30s``.

        Raises:
            InvalidArgument: The text has another form, or the rate is out of bounds.
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
        burst = None if found[4] is None else int(found[4])
        return cls(float(found[1]), per, burst, cast("RateUnit", found[3] or "messages"))

    @classmethod
    def every(cls, interval: timedelta, burst: int, of: RateUnit = "messages") -> Rate | None:
        """Return the rate with this :attr:`interval`; None for zero, which the database stores if there is no rate."""
        return cls(1, interval, burst, of) if interval > timedelta() else None

    def per_time(self) -> str:
        """Write the rate without its burst, like ``50/s`` or ``1.5/m``, with at most six decimals."""
        counted = "" if self.of == "messages" else f" of {self.of}"
        units = [unit for unit in ("s", "m", "h", "d") if UNITS[unit] >= self.interval]
        if not units:
            return f"1/{_decimal(self.interval / UNITS['d'])}d{counted}"
        for unit in units:
            count = _decimal(UNITS[unit] / self.interval)
            if Fraction(count) * microseconds(self.interval) == microseconds(UNITS[unit]):
                return f"{count}/{unit}{counted}"
        for unit in units:
            # 30/s is stored as 30.0003/s, since an interval is whole microseconds.
            count = str(round(UNITS[unit] / self.interval))
            if UNITS[unit] / int(count) == self.interval:
                return f"{count}/{unit}{counted}"
        return f"{_decimal(UNITS[units[0]] / self.interval)}/{units[0]}{counted}"

    def __str__(self) -> str:
        """Write the rate as :meth:`parse` reads it, rounded to six decimals."""
        return self.per_time() + ("" if self.burst == Rate(1, self.interval).burst else f", burst {self.burst}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rate):
            return NotImplemented
        return (self.interval, self.burst, self.of) == (other.interval, other.burst, other.of)

    def __hash__(self) -> int:
        return hash((self.interval, self.burst, self.of))


def _decimal(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


MOST = 2**31 - 1
_KEY = "definition"
_NUMBER = re.compile(r"\d{1,19}|\d{1,3}(?:,\d{3})+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(ABC):
    """How the value of a field is checked, parsed, shown and stored.

    Attributes:
        none: What a value of None means, in words; None if the field must have a value.
        holds: When a change begins to apply, in words.
        refuses: Whether the field can keep messages out. The history lacks such messages, so replays ban the field.
    """

    help: str = ""
    none: str | None = None
    holds: str = "from the commit on"
    refuses: bool = False
    metavar: ClassVar[str] = "NAME"

    def field(self, default: object) -> Any:
        return field(default=default, metadata={_KEY: self})

    def checked(self, name: str, value: object) -> Any:
        """Return what the field keeps: for ``"50/s"``, a Rate. A value that is not allowed raises InvalidArgument."""
        return None if value is None and self.none is not None else self._checked(name, value)

    def parsed(self, text: str) -> Any:
        """Parse a text that people write. "none" means None, if the field may be None. A bad text raises ValueError."""
        words = text.strip()
        if self.none is not None and words.lower() == "none":
            return None
        try:
            return self._parsed(words)
        except ValueError as error:
            otherwise = "" if self.none is None else f", or none: {self.none}"
            raise ValueError(f"{error}{otherwise}") from None

    def text(self, value: object) -> str:
        """Write a value as :meth:`parsed` reads it."""
        return "none" if value is None else self._text(value)

    def shown(self, value: object) -> str:
        return (self.none or "-") if value is None else self._text(value)

    def columns(self, name: str) -> tuple[str, ...]:
        return (name,)

    def column_values(self, name: str, value: Any) -> dict[str, object]:
        return {name: value}

    def value_of(self, name: str, columns: Mapping[str, Any]) -> Any:
        return columns[name]

    def _checked(self, name: str, value: Any) -> Any:
        check_name(name, value)
        return value

    @abstractmethod
    def _parsed(self, words: str) -> Any: ...

    def _text(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Definition):
    """A field whose value is a whole number from *least* to *most*."""

    least: int = 1
    most: int = MOST
    metavar: ClassVar[str] = "N"

    def _checked(self, name: str, value: Any) -> Any:
        check_count(name, value, self.least, self.most)
        return value

    def _parsed(self, words: str) -> int:
        if not _NUMBER.fullmatch(words):
            raise ValueError(f"{words!r:.80} is no whole number; give one from {self.least}")
        return int(words.replace(",", ""))

    def _text(self, value: Any) -> str:
        return f"{value:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration(Definition):
    """A field whose value is a time from *least* to 365 days, stored in microseconds."""

    least: timedelta = timedelta(microseconds=1)
    metavar: ClassVar[str] = "DURATION"

    def _checked(self, name: str, value: Any) -> timedelta:
        return check_duration(name, value, self.least)

    def _parsed(self, words: str) -> timedelta:
        return parsed_duration(words, seconds=True)

    def _text(self, value: Any) -> str:
        parts, rest = [], value
        for unit in ("d", "h", "m", "s", "ms", "us"):
            count, rest = divmod(rest, UNITS[unit])
            parts += [f"{count}{unit}"] if count else []
        return "".join(parts) or "0s"

    def column_values(self, name: str, value: Any) -> dict[str, object]:
        return {name: None if value is None else microseconds(value)}

    def value_of(self, name: str, columns: Mapping[str, Any]) -> timedelta | None:
        return None if columns[name] is None else duration(columns[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class RateOf(Definition):
    """A field whose value is a :class:`Rate` or its text, stored as the rate's interval, burst and unit."""

    metavar: ClassVar[str] = "RATE"

    def _checked(self, name: str, value: Any) -> Rate:
        if isinstance(value, Rate):
            return value
        if isinstance(value, str):
            return Rate.parse(value)
        example = f"Rate({value}) or '{value}/s'" if isinstance(value, int | float) else "Rate(50) or '50/s'"
        raise InvalidArgument(
            f"{name} is {value!r:.80}; give a Rate, its text, or None for no limit, such as {example}"
        )

    def _parsed(self, words: str) -> Rate:
        return Rate.parse(words)

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the names of three columns, for the interval in microseconds (0: no rate), the burst, and the unit."""
        return f"{name}_interval", f"{name}_burst", f"{name}_of"

    def column_values(self, name: str, value: Any) -> dict[str, object]:
        rate: Rate | None = self.checked(name, value)
        values = (0, 1, "messages") if rate is None else (microseconds(rate.interval), rate.burst, rate.of)
        return dict(zip(self.columns(name), values, strict=True))

    def value_of(self, name: str, columns: Mapping[str, Any]) -> Rate | None:
        interval, burst, unit = (columns[column] for column in self.columns(name))
        return Rate.every(duration(interval or 0), burst, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Definition):
    """A field whose value is one of a few words."""

    words: tuple[str, ...]
    metavar: ClassVar[str] = "WORD"

    def _checked(self, name: str, value: Any) -> Any:
        check_choice(name, value, self.words)
        return value

    def _parsed(self, words: str) -> str:
        if words not in self.words:
            *others, last = self.words
            raise ValueError(f"{words!r:.80} is none of {', '.join(others)} and {last}")
        return words


def definitions(kind: type[DataclassInstance]) -> dict[str, Definition]:
    return {one.name: one.metadata[_KEY] for one in fields(kind) if _KEY in one.metadata}


def check_fields(values: DataclassInstance) -> None:
    for name, definition in definitions(type(values)).items():
        object.__setattr__(values, name, definition.checked(name, getattr(values, name)))
