"""Advice on arguments that have a wrong name: a misspelt one, or the word of another library.

Only errors come here.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DURATIONS = {"delay", "timeout", "first", "cap", "unique_for"}
# By our word, those of Celery, RQ, Dramatiq, Arq, Oban, procrastinate and message brokers.
_WORDS = {
    "delay": ("countdown", "defer_by", "delay_seconds", "schedule_in"),
    "at": ("eta", "run_at", "defer_until", "schedule_at", "scheduled_at"),
    "payload": ("args", "kwargs", "body", "data", "message"),
    "channel": ("customer", "routing_key", "tenant", "tenant_id", "user_id"),
    "kind": ("function", "job", "name", "task", "task_name"),
    "key": ("dedupe_key", "deduplication_id", "idempotency_key", "job_id", "queueing_lock", "task_id", "unique_key"),
    "max_attempts": ("max_retries", "max_tries", "retries"),
    "timeout": ("job_timeout", "soft_time_limit", "time_limit"),
    "first": ("backoff", "base_delay", "initial", "min_backoff", "retry_backoff"),
    "cap": ("max_backoff", "max_delay", "maximum", "retry_backoff_max"),
    "factor": ("base", "exponent", "multiplier"),
    "jitter": ("retry_jitter",),
    "retry_on": ("autoretry_for", "retry_for"),
    "bury_on": ("dont_autoretry_for", "dont_retry_on", "throws"),
}
_MEANT = {theirs: ours for ours, words in _WORDS.items() for theirs in words}
WITHOUT_AN_ENGINE = "leave it out: each call has its own session, connection or engine, such as enqueue(engine, ...)"
_ENGINES = {"bind", "connection", "engine", "session"}
# Words that count the attempts after the first one.
_RETRIES = {"max_retries", "retries"}


def advice_on(name: str, value: object, names: Iterable[str]) -> str:
    """What to write for an argument that a call does not have.

    Args:
        name: The name that was given.
        value: Its value.
        names: The names that the call has.
    """
    known = [*names]
    if name in _ENGINES and name not in known:
        return WITHOUT_AN_ENGINE
    meant = _MEANT.get(name)
    if meant == "max_attempts" and meant not in known and "retry" in known:
        written, _, remark = _written(name, meant, value).partition(", ")
        return f"write retry=RetryPolicy({written}){remark and f', {remark}'}"
    if meant not in known:
        meant = next(iter(get_close_matches(name, known, n=1)), None)
    if meant is None:
        return f"its arguments are {', '.join(known)}"
    return f"write {_written(name, meant, value)}"


def unknown_argument(where: str, given: Mapping[str, object], names: Iterable[str]) -> str | None:
    """What is wrong with the names of a call's arguments, and what to write. None: nothing is."""
    known = [*names]
    for name, value in given.items():
        if name not in known:
            return f"{where} has {name}={value!r:.80}, which is none of its arguments; {advice_on(name, value, known)}"
    return None


def _written(name: str, meant: str, value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if meant in _DURATIONS:
            return f"{meant}=timedelta(seconds={value})"
        if name in _RETRIES:
            return f"{meant}={value + 1}, where the first attempt counts"
    return f"{meant}={value!r:.80}"
