"""Formats of durations, numbers and names on the page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy_fairqueue.texts import clean

_MICRO = timedelta(microseconds=1)
_MILLISECOND, _SECOND = 1_000, 1_000_000
_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_LARGE = 100
_DIGITS = 10


def name(text: str, longest: int | None = None) -> str:
    """Escape unprintable characters of a name, and shorten it to *longest* characters."""
    text = clean(text)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}\u2026"


def duration(value: timedelta | None) -> str:
    """Format a duration: ``0``, ``3.20 ms``, ``1.25 s``, ``2 min 05 s``, ``3 h 02 min``; for None a dash."""
    if value is None:
        return "\u2013"
    micros = value // _MICRO
    if micros < _MILLISECOND:
        return f"{micros} \u00b5s" if micros else "0"
    if micros < _SECOND:
        return f"{_digits(micros / _MILLISECOND)} ms"
    seconds = round(micros / _SECOND)
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{_digits(micros / _SECOND)} s"
    size, unit, lower_size, lower = next(one for one in _UNITS if seconds >= one[0])
    return f"{seconds // size} {unit} {seconds % size // lower_size:02} {lower}"


def _digits(value: float) -> str:
    digits = 0 if value >= _LARGE else 1 if value >= _DIGITS else 2
    return f"{value:.{digits}f}"


def number(value: float | None, digits: int = 0) -> str:
    return "\u2013" if value is None else f"{value:,.{digits}f}"


def ratio(value: float) -> str:
    return number(value) if value >= _LARGE else _digits(value)


def percent(value: float | None) -> str:
    return "\u2013" if value is None else f"{100 * value:,.1f} %"


def moment(value: datetime, after: datetime | None = None) -> str:
    value = value.astimezone(UTC)
    if after is not None and after.astimezone(UTC).date() == value.date():
        return f"{value:%H:%M:%S}"
    return f"{value:%Y-%m-%d %H:%M:%S}"
