"""Reads durations, rates and whole numbers from text (``1h30m``, ``10/s``), and writes values as text for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.times import parsed_duration
from sqlalchemy_fairqueue.values.fields import Rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.values.reports import AttemptDetails, LongestOut

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60}
_WHOLE = re.compile(r"\d{1,19}", re.ASCII)


def parse_whole(text: str) -> int:
    if not _WHOLE.fullmatch(text) or (number := int(text)) >= 2**63:
        raise ValueError(f"{text!r:.80} is no whole number from 0 to {2**63 - 1}")
    return number


def parse_duration(text: str) -> timedelta:
    return parsed_duration(text, seconds=True)


def format_duration(duration: timedelta) -> str:
    """Format a duration in two units (``3d 04h``, ``12m 05s``), or below a minute in one (``3.2s``, ``250ms``)."""
    seconds = duration.total_seconds()
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if round(seconds, 3) < 1:
        return f"{sign}{seconds * 1000:.0f}ms"
    if round(seconds, 1) < _SECONDS["m"]:
        return f"{sign}{seconds:.1f}s"
    whole = round(seconds)
    units = [*_SECONDS.items(), ("s", 1)]
    for (unit, size), (lower, lower_size) in pairwise(units):
        if whole >= size:
            return f"{sign}{whole // size}{unit} {whole % size // lower_size:02}{lower}"
    return f"{sign}{whole}s"


def parse_rate(text: str) -> Rate | Literal["none"]:
    if text.strip().lower() == "none":
        return "none"
    try:
        return Rate.parse(text)
    except InvalidArgument as error:
        raise ValueError(f"{error}; none is no limit") from None


def format_value(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case timedelta():
            return format_duration(value)
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        case _:
            return clean(str(value))


def format_longest(longest: LongestOut, now: datetime, channel: str | None = None) -> str:
    """Describe a leased message: ``message 41 of acme, parse, for 58.0s``, without ``of acme`` if that is *channel*."""
    name = f" of {clean(longest.channel)}" if longest.channel != channel else ""
    kind = f", {clean(longest.kind)}" if longest.kind else ""
    since = f", for {format_duration(max(now - longest.since, timedelta()))}" if longest.since else ""
    return f"message {longest.message_id}{name}{kind}{since}"


def end_words(state: str, at: datetime | None, attempts: Sequence[AttemptDetails]) -> str:
    """Describe how a message ended: ``completed at 2026-03-01 10:00:00 UTC, 2 attempts, ran 3.2s``.

    *state* is "gone" if the message was withdrawn or purged after its last recorded attempt. If *at* is None, the text
    shows when the last attempt ended. *attempts* are the recorded ones, the oldest first.
    """
    if not attempts:
        return f"{state} at {format_value(at)} UTC"
    last = attempts[-1]
    how = last.outcome if state == "gone" else state
    words = f"{how} at {format_value(at or last.finished_at)} UTC, {plural(last.attempt, 'attempt')}"
    words += f", ran {format_duration(last.finished_at - last.started_at)}"
    return f"{words}; withdrawn or purged since" if state == "gone" else words


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
