"""Whether the queues are served: what waits too long, notes that nobody hears, leases that nobody took back."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.printing import counted, duration_words
from sqlalchemy_fairqueue.cli.rows import age
from sqlalchemy_fairqueue.queue import Queue
from sqlalchemy_fairqueue.statements import queues
from sqlalchemy_fairqueue.statements.building import qualifier
from sqlalchemy_fairqueue.times import duration, instant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination
    from sqlalchemy_fairqueue.values import QueueStats

_MANY_SIGNALS = 10_000
_GRACE = timedelta(minutes=1)
"""Whoever dequeues takes expired leases back, a few at a time."""

_EXPIRED = (
    "select l.queue, count(*) as leases, {schema}fq_now() - min(l.expires_at) as overdue "
    "from {schema}fq_lease l where l.expires_at < {schema}fq_now() - :grace "
    "and exists (select from {schema}fq_message m where m.lease_id = l.id) "
    "and (cast(:queue as text) is null or l.queue = :queue) group by l.queue order by l.queue"
)


def check_queues(examined: Examination) -> Iterator[Finding]:
    """Each queue: how long the oldest ready message waits, who serves it, what was left for the dispatcher."""
    connection, schema = examined.connection, examined.schema
    names = sorted(connection.scalars(queues(schema)))
    if examined.queue is not None and examined.queue not in names:
        yield Finding("queues", Level.PROBLEM, f"there is no queue {examined.queue!r} in schema {schema!r}")
    elif not names:
        yield Finding("queues", Level.OK, "there is no queue yet")
    now = instant(connection.scalar(text(f"select {qualifier(schema)}fq_now()")) or 0)
    for name in names:
        if examined.queue in {None, name}:
            yield from _queue(Queue(name, schema=schema).stats(connection), now, examined.max_age)


def check_leases(examined: Examination) -> Iterator[Finding]:
    """Messages whose consumer has gone and that nobody took back: nobody dequeues."""
    query = text(_EXPIRED.replace("{schema}", qualifier(examined.schema)))
    parameters = {"grace": _GRACE // timedelta(microseconds=1), "queue": examined.queue}
    found = False
    for row in examined.connection.execute(query, parameters):
        found = True
        yield Finding(
            "leases", Level.PROBLEM,
            f"queue {row.queue!r}: {counted(row.leases, 'expired lease')} with messages, the oldest for "
            f"{duration_words(duration(row.overdue))}: nobody takes them back",
            "start a worker: whoever dequeues takes expired leases back",
            {"queue": row.queue, "leases": row.leases, "overdue_seconds": duration(row.overdue)},
        )  # fmt: skip
    if not found:
        yield Finding("leases", Level.OK, "no expired lease holds messages")


def _queue(stats: QueueStats, now: datetime, max_age: timedelta) -> Iterator[Finding]:
    waits = age(stats.oldest_ready_at, now)
    values = {
        "queue": stats.queue, "ready": stats.ready, "dead": stats.dead, "signals": stats.signals,
        "consumers": stats.consumers, "oldest_ready_seconds": waits, "paused_at": stats.paused_at,
    }  # fmt: skip
    who = f"queue {stats.queue!r}"
    since = f", the oldest for {duration_words(waits)}" if waits is not None else ""
    others = f"{counted(stats.consumers, 'consumer')}, {counted(stats.dead, 'dead letter')}"
    message = f"{who}: {stats.ready:,} ready{since}, {others}"
    if stats.paused_at is not None:
        paused = duration_words(now - stats.paused_at)
        remedy = f"fairqueue resume --queue {shlex.quote(stats.queue)}"
        yield Finding("queues", Level.WARNING, f"{message}; paused {paused} ago", remedy, values)
    elif waits is not None and waits > max_age:
        level = Level.WARNING if stats.consumers else Level.PROBLEM
        remedy = "start a worker" if not stats.consumers else (
            "start more workers, or look with 'fairqueue channels' which channel is held back by its limits"
        )  # fmt: skip
        yield Finding("queues", level, message, remedy, values)
    else:
        yield Finding("queues", Level.OK, message, None, values)
    if stats.signals > _MANY_SIGNALS:
        yield Finding(
            "signals", Level.WARNING,
            f"{who}: {stats.signals:,} signals that no dequeue has heard yet",
            "start a worker: whoever dequeues hears them first, some hundred thousand a second",
            values,
        )  # fmt: skip
