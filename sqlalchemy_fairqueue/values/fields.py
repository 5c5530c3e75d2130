"""Fields that people set: how a value is checked, read from text, written as text, and kept in columns of SQL.

:class:`~sqlalchemy_fairqueue.ChannelPolicy` and :class:`~sqlalchemy_fairqueue.values.settings.QueueSettings` define
their fields with these, once; arguments, options, editors, columns and tables on pages are derived from the
definitions.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy_fairqueue.times import UNITS, duration, microseconds, parsed_duration
from sqlalchemy_fairqueue.values.checks import check_choice, check_count, check_duration, check_name
from sqlalchemy_fairqueue.values.rates import Rate, checked_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

MOST = 2**31 - 1
"""The greatest integer of a column."""
_KEY = "definition"
_NUMBER = re.compile(r"\d{1,19}|\d{1,3}(?:,\d{3})+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(ABC):
    """The definition of a field, beside its name, type and default.

    Attributes:
        help: What it does, in one sentence.
        example: A value as text, other than the default.
        none: What None means; None if the field must have a value.
        holds: From when on a change holds.
        refuses: Whether it refuses messages, of which a history then has no record.
    """

    help: str
    example: str
    none: str | None = None
    holds: str = "from the commit on"
    refuses: bool = False
    metavar: ClassVar[str] = "NAME"

    @property
    def metadata(self) -> dict[str, Definition]:
        """The metadata by which the field of a dataclass has this definition."""
        return {_KEY: self}

    def checked(self, name: str, value: object) -> Any:
        """Return the value as it is kept.

        Raises:
            InvalidArgument: It cannot be kept.
        """
        return None if value is None and self.none is not None else self._checked(name, value)

    def parsed(self, text: str) -> Any:
        """Read a value that people write; ``none`` is None.

        Raises:
            ValueError: The text is no value.
        """
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
        """Write a value for people, who read what None means."""
        return (self.none or "-") if value is None else self._text(value)

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the names of the columns that keep a field of this name."""
        return (name,)

    def column_values(self, name: str, value: Any) -> dict[str, object]:
        """Return what the columns keep of a value."""
        return {name: value}

    def value_of(self, name: str, columns: Mapping[str, Any]) -> Any:
        """Return the value that columns keep."""
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
    """A whole number.

    Attributes:
        least: The least value.
        most: The greatest one.
    """

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
    """A time, of at most 365 days.

    Attributes:
        least: The least value.
    """

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
        """Convert durations, which columns hold in microseconds."""
        return {name: None if value is None else microseconds(value)}

    def value_of(self, name: str, columns: Mapping[str, Any]) -> timedelta | None:
        """Convert durations, which columns hold in microseconds."""
        return None if columns[name] is None else duration(columns[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class RateOf(Definition):
    """A :class:`Rate`, which may be given as text, and is kept as its interval and its burst."""

    metavar: ClassVar[str] = "RATE"

    def _checked(self, name: str, value: Any) -> Rate | None:
        return checked_rate(name, value)

    def _parsed(self, words: str) -> Rate:
        return Rate.parse(words)

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the names of the columns: the interval, which is 0 without a rate, and the burst."""
        return f"{name}_interval", f"{name}_burst"

    def column_values(self, name: str, value: Any) -> dict[str, object]:
        """Return the interval in microseconds, and the burst."""
        rate = checked_rate(name, value)
        values = (0, 1) if rate is None else (microseconds(rate.interval), rate.burst)
        return dict(zip(self.columns(name), values, strict=True))

    def value_of(self, name: str, columns: Mapping[str, Any]) -> Rate | None:
        """Return the rate of an interval in microseconds and a burst."""
        interval, burst = (columns[column] for column in self.columns(name))
        return Rate.of(duration(interval), burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Definition):
    """A field whose value is one of a few words.

    Attributes:
        words: The words.
    """

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
    """Return the definitions of the fields of a dataclass that have one, by the names of the fields."""
    return _definitions(kind)


@cache
def _definitions(kind: type[DataclassInstance]) -> dict[str, Definition]:
    return {one.name: one.metadata[_KEY] for one in fields(kind) if _KEY in one.metadata}


def check_fields(values: DataclassInstance) -> None:
    """Check the fields of a frozen dataclass, and keep them as their definitions say.

    Raises:
        InvalidArgument: A value cannot be kept.
    """
    for name, definition in _definitions(type(values)).items():
        object.__setattr__(values, name, definition.checked(name, getattr(values, name)))
