"""Durations and rates as people type them: ``250ms``, ``1h30m``, ``10/s``."""

from __future__ import annotations

import re
from datetime import timedelta

from sqlalchemy_fairqueue.times import UNITS, parsed_duration

_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(\S+)", re.ASCII)
NONE = "none"


def duration(text: str) -> timedelta:
    """``30s``, ``250ms``, ``1h30m``, ``7d``; a number alone is seconds.

    Raises:
        ValueError: It is none of these, or too long.
    """
    number = text.strip()
    return parsed_duration(f"{number}s" if _NUMBER.fullmatch(number) else text)


def rate(text: str) -> timedelta:
    """The time between two messages at a rate: ``10/s``, ``600/m``, ``1/30s``; ``none`` is zero, for no limit.

    Raises:
        ValueError: It is none of these, or more than a million a second.
    """
    if text.strip().lower() == NONE:
        return timedelta()
    problem = f"{text!r} is no rate; give one like 10/s, 600/m, 1/30s or none"
    found = _RATE.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise ValueError(problem)
    try:
        per = UNITS[found[2]] if found[2] in UNITS else duration(found[2])
        if not per:
            raise ValueError  # noqa: TRY301 - told below, with the text
        interval = per / float(found[1])
    except (ValueError, OverflowError):
        raise ValueError(problem) from None
    if not interval:
        raise ValueError(f"{text!r} is more than a million a second; give none for no limit")
    return interval


def rate_words(interval: timedelta | None) -> str | None:
    """A time between two messages as a rate, in the smallest unit that has at least one; None for no limit."""
    if not interval:
        return None
    for unit in ("s", "m", "h", "d"):
        if UNITS[unit] >= interval:
            return f"{UNITS[unit] / interval:.4g}/{unit}"
    return f"1/{interval / UNITS['d']:.4g}d"
