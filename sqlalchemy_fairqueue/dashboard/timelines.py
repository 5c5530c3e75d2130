"""Timelines of messages: what happened to a message, attempt by attempt, and the waits between."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.formats import format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy_fairqueue.database.messages import FoundResult
    from sqlalchemy_fairqueue.values.reports import AttemptDetails, DeadLetterInfo, MessageDetails

_LEAST_WAIT_SECONDS = 0.001
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}", re.ASCII)
_OUTCOMES = {
    "completed": ("completed the message", "good"),
    "retried": ("failed and was put back to be tried again", "warn"),
    "released": ("was put back undone, and does not count", "calm"),
    "buried": ("was given up", "bad"),
    "expired": ("was lost: its lease ended before it was settled", "bad"),
    "cancelled": ("was cancelled", "warn"),
}

ENDED = {
    "completed": ("completed", "good"),
    "unkept": ("completed", "good"),
    "expired": ("ended", "calm"),
    "cancelled": ("cancelled", "warn"),
    "failed": ("a dead letter", "bad"),
}
"""The words and levels of messages that have ended, by the states of their results."""
_GONE = ("gone", "calm")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a timeline; *at* is None for the present.

    Attributes:
        level: The CSS class of the step. For an attempt, or for the end of the message: "good", "warn", "bad", or the
            neutral "calm", as for a release. For a wait: "between". For the present: "now". For other steps: empty.
    """

    at: datetime | None
    words: str
    level: str = ""
    error: str | None = field(default=None, repr=False)


def timeline(
    message: MessageDetails | None, letter: DeadLetterInfo | None, attempts: Sequence[AttemptDetails], now: datetime
) -> list[Step]:
    one = message or letter
    assert one is not None  # noqa: S101 - one of them is given
    steps = [Step(one.enqueued_at, "enqueued"), *_attempts(attempts, one.enqueued_at)]
    if message is not None:
        steps += _going_on(message, now, recorded=bool(attempts))
    elif letter is not None:
        steps.append(Step(letter.died_at, f"died after {plural(letter.attempts, 'attempt')}: {letter.reason}", "bad"))
    return steps


def end_of(kept: FoundResult, attempts: Sequence[AttemptDetails]) -> tuple[str, str] | None:
    """Return words for the end of a message, and their level; None if neither *kept* nor an attempt tells it."""
    if kept.state in ENDED or not attempts:
        return ENDED.get(kept.state)
    return ENDED[attempts[-1].outcome] if _is_end(attempts[-1]) else _GONE


def ended_timeline(attempts: Sequence[AttemptDetails], kept: FoundResult) -> list[Step]:
    steps = [Step(one.enqueued_at, "enqueued") for one in attempts[:1]]
    steps += _attempts(attempts, attempts[0].enqueued_at) if attempts else ()
    end = end_of(kept, attempts)
    if end is _GONE:
        steps.append(Step(attempts[-1].finished_at, "withdrawn or purged since", "calm"))
    elif end is not None and not (attempts and _is_end(attempts[-1])):
        steps.append(Step(kept.finished_at, *end))
    return steps


def _is_end(attempt: AttemptDetails) -> bool:
    return attempt.outcome in {"completed", "cancelled"}


def _attempts(attempts: Sequence[AttemptDetails], before: datetime) -> Iterator[Step]:
    for attempt in attempts:
        yield from _waited(attempt.ready_at, attempt.started_at, before)
        yield _attempt(attempt)
        before = attempt.finished_at


def _waited(ready_at: datetime, started_at: datetime, before: datetime) -> Iterator[Step]:
    if _matters(ready_at - before):
        yield Step(before, f"waited {format_duration(ready_at - before)} for its time", "between")
    if _matters(started_at - ready_at):
        yield Step(max(ready_at, before), f"waited {format_duration(started_at - ready_at)} for its turn", "between")


def _attempt(attempt: AttemptDetails) -> Step:
    words, level = _OUTCOMES.get(attempt.outcome, (attempt.outcome, ""))
    by = f" by {attempt.consumer}" if attempt.consumer is not None else ""
    took = format_duration(attempt.finished_at - attempt.started_at)
    return Step(
        attempt.started_at,
        f"attempt {attempt.attempt}{by} took {took}, until {attempt.finished_at:%H:%M:%S}, and {words}",
        level,
        attempt.error,
    )


def _going_on(message: MessageDetails, now: datetime, *, recorded: bool) -> Iterator[Step]:
    due, enqueued = message.due_at, message.enqueued_at
    if due > now:
        yield Step(due, f"due, in {format_duration(due - now)}")
    elif due > enqueued and not recorded:
        yield Step(due, "was due")
    if message.deliveries and message.delivered_at is not None and (message.consumer is not None or not recorded):
        again = f", the {message.deliveries}. time" if message.deliveries > 1 else ""
        yield Step(message.delivered_at, f"delivered{again}")
    if message.deliveries and message.returned_at is not None and not recorded:
        yield Step(message.returned_at, "came back undone")
    if message.consumer is not None:
        expires_at = message.expires_at or now
        left = expires_at - now
        ends = f"in {format_duration(left)} unless it is extended" if expires_at > now else "\N{EN DASH} it has expired"
        yield Step(None, f"held by {message.consumer}; the lease ends {ends}", "now")
    elif due <= now:
        turn = "its turn" if message.behind is None else f"message {message.behind} of its ordering key"
        yield Step(None, f"waits for {turn}", "now")


def _matters(wait: timedelta) -> bool:
    return wait.total_seconds() >= _LEAST_WAIT_SECONDS


def trace_link(address: str | None, headers: str | Mapping[str, Any] | None) -> str | None:
    try:
        found: Any = json.loads(headers) if isinstance(headers, str) else headers
    except ValueError:
        return None
    carried = found.get("traceparent") if isinstance(found, dict) else None
    ids = _TRACEPARENT.fullmatch(carried) if isinstance(carried, str) else None
    if address is None or ids is None:
        return None
    return address.replace("{trace_id}", ids[1]).replace("{span_id}", ids[2])
