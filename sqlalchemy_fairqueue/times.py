"""Conversions of time: aware datetimes and timedeltas in Python, whole microseconds in SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(duration: timedelta) -> int:
    """A duration as whole microseconds."""
    return duration // _MICROSECOND


def instant_microseconds(instant: datetime) -> int:
    """An aware datetime as microseconds since the epoch.

    Raises:
        ValueError: The datetime is naive, so that it names no instant.
    """
    if instant.utcoffset() is None:
        raise ValueError(f"datetime {instant!r} has no time zone; give an aware one, like datetime.now(UTC)")
    return (instant - _EPOCH) // _MICROSECOND


def instant(value: int) -> datetime:
    """Microseconds since the epoch as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=value)


def duration(value: int) -> timedelta:
    """Microseconds as a timedelta."""
    return timedelta(microseconds=value)
