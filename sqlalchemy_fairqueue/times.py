"""Conversions of time: aware datetimes and timedeltas in Python, microseconds in SQL, durations in text (``1h30m``)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
"""The units of durations as people write them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)
_FIRST = (_FIRST_INSTANT - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|[smhdw])", re.ASCII)


def microseconds(duration: timedelta) -> int:
    # Divide as timedelta itself does, since a subclass in the application may divide in another way.
    return timedelta.__floordiv__(duration, _MICROSECOND)


def instant_microseconds(instant: datetime) -> int:
    # Call the methods of datetime itself, for the same reason as in microseconds().
    if datetime.utcoffset(instant) is None:
        raise ValueError(f"datetime {instant!r} has no time zone; give an aware one, like datetime.now(UTC)")
    return microseconds(datetime.__sub__(instant, _EPOCH))


def instant(value: int) -> datetime:
    return _EPOCH + value * _MICROSECOND


def any_instant(value: int) -> datetime:
    """Convert microseconds like :func:`instant`, clipped to the years that datetime has."""
    return instant(min(max(value, _FIRST), _LAST))


def earlier(instant: datetime, by: timedelta) -> datetime:
    """Return the instant that is *by* earlier, clipped to the years that datetime has."""
    return max(instant - _FIRST_INSTANT, by) - by + _FIRST_INSTANT


def duration(value: int) -> timedelta:
    return timedelta(microseconds=value)


def parsed_duration(text: str, *, seconds: bool = False) -> timedelta:
    """Parse a duration: ``30s``, ``250ms``, ``1h30m``, ``7d``. With *seconds*, a number alone counts as seconds.

    Other text, or a duration that is too long, raises ValueError.
    """
    words = text.strip().lower()
    if seconds and _NUMBER.fullmatch(words):
        words += "s"
    parts = _PART.findall(words)
    try:
        if parts and "".join(number + unit for number, unit in parts) == words:
            return sum((float(number) * UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError:
        pass
    raise ValueError(f"{text!r:.80} is no duration; give one like 30s, 250ms, 5m, 1h30m or 7d")
