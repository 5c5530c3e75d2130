"""Service of the queues: messages that wait too long, signals that nothing hears, expired leases, waits."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.doctor.samples import persistent_rows
from sqlalchemy_fairqueue.cli.formats import format_duration, plural
from sqlalchemy_fairqueue.cli.installation import queue_names
from sqlalchemy_fairqueue.database.stats import read_clock, stats_by_queue
from sqlalchemy_fairqueue.figures import age
from sqlalchemy_fairqueue.times import duration, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext
    from sqlalchemy_fairqueue.values.reports import QueueStats

_MAX_SIGNALS = 10_000
_GRACE = timedelta(minutes=1)
"""Time for dequeues to reclaim expired leases, which they do a few at a time."""


def check_queues(context: CheckContext) -> Iterator[Finding]:
    """Each queue: the wait of its oldest ready message, its consumers, the signals that wait for a dequeue."""
    connection, schema = context.connection, context.schema
    names = queue_names(connection, schema)
    if context.queue is not None and context.queue not in names:
        yield Finding("queues", Level.PROBLEM, f"there is no queue {context.queue!r} in schema {schema!r}")
    elif not names:
        yield Finding("queues", Level.OK, "there is no queue yet")
    now = read_clock(connection, schema)
    wanted = [name for name in names if context.queue in {None, name}]
    for stats in stats_by_queue(connection, schema, wanted).values():
        yield from _queue(stats, now, context.max_age)


def check_leases(context: CheckContext) -> Iterator[Finding]:
    """Expired leases that hold messages: no dequeue has reclaimed them."""
    found = False
    for row in context.execute("expired_leases", grace=microseconds(_GRACE), queue=context.queue):
        found = True
        yield Finding(
            "leases", Level.PROBLEM,
            f"queue {row.queue!r}: {plural(row.leases, 'expired lease')} with messages, the oldest for "
            f"{format_duration(duration(row.overdue))}: no dequeue reclaims them",
            "start a worker: every dequeue reclaims expired leases",
            {"queue": row.queue, "leases": row.leases, "overdue_seconds": duration(row.overdue)},
        )  # fmt: skip
    if not found:
        yield Finding("leases", Level.OK, "no expired lease holds messages")


def check_waits(context: CheckContext) -> Iterator[Finding]:
    """Waits of consumers that nobody listens for: producers notify them in vain."""
    # A worker that stops takes its wait back a moment after its listener is gone.
    unheard = persistent_rows(
        context.connection, lambda: {row.id: row for row in context.execute("unheard_waits", queue=context.queue)}
    )
    for row in unheard:
        left = duration(row.left_for)
        yield Finding(
            "waits", Level.WARNING,
            f"queue {row.queue!r}: consumer {row.consumer!r} waits for {format_duration(left)} more, and no session "
            "listens for it: notifications that name it wake nobody",
            "if it has died, its wait ends by itself; if it runs, it polls: look in its log for why it cannot listen, "
            "and give it --no-listen behind a transaction pooler",
            {"queue": row.queue, "consumer": row.consumer, "left_seconds": left},
        )  # fmt: skip
    if not unheard:
        yield Finding("waits", Level.OK, "a session listens for every consumer that waits")


def _queue(stats: QueueStats, now: datetime, max_age: timedelta) -> Iterator[Finding]:
    waits = age(stats.oldest_ready_at, now)
    values = {
        "queue": stats.queue, "ready": stats.ready, "dead": stats.dead, "signals": stats.signals,
        "consumers": stats.consumers, "oldest_ready_seconds": waits, "paused_at": stats.paused_at,
    }  # fmt: skip
    who = f"queue {stats.queue!r}"
    since = f", the oldest for {format_duration(waits)}" if waits is not None else ""
    others = f"{plural(stats.consumers, 'consumer')}, {plural(stats.dead, 'dead letter')}"
    message = f"{who}: {stats.ready:,} ready{since}, {others}"
    if stats.paused_at is not None:
        paused = format_duration(now - stats.paused_at)
        remedy = f"fairqueue resume --queue {shlex.quote(stats.queue)}"
        yield Finding("queues", Level.WARNING, f"{message}; paused {paused} ago", remedy, values)
    elif waits is not None and waits > max_age:
        level = Level.WARNING if stats.consumers else Level.PROBLEM
        remedy = "start a worker" if not stats.consumers else (
            "start more workers, or find the channel that its limits hold back with 'fairqueue channels'"
        )  # fmt: skip
        yield Finding("queues", level, message, remedy, values)
    else:
        yield Finding("queues", Level.OK, message, None, values)
    if stats.signals > _MAX_SIGNALS:
        yield Finding(
            "signals", Level.WARNING,
            f"{who}: {stats.signals:,} signals that no dequeue has heard yet",
            "start a worker: every dequeue hears them first, some hundred thousand a second",
            values,
        )  # fmt: skip
