"""Checks the service of queues: waits that are too long, kinds that fail, locks, leases, wake-ups and schedules."""

from __future__ import annotations

import shlex
from datetime import timedelta
from heapq import nlargest
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.stats import read_clock, read_points, read_queues, stats_by_queue
from sqlalchemy_fairqueue.doctor.findings import Finding, Level, check, persistent_rows
from sqlalchemy_fairqueue.doctor.installation import current_role
from sqlalchemy_fairqueue.figures.queues import AGAIN, age, behind
from sqlalchemy_fairqueue.figures.shared import Point
from sqlalchemy_fairqueue.formats import format_duration, plural
from sqlalchemy_fairqueue.sql.schema import quoted_literal
from sqlalchemy_fairqueue.times import duration, microseconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.doctor.findings import CheckContext
    from sqlalchemy_fairqueue.values.reports import QueueStats


LONG = timedelta(minutes=1)
"""From this wait on, a summary says that a queue is behind."""
_MAX_SIGNALS = 10_000
_PAST, _STEP, _MOST_READY = timedelta(minutes=10), timedelta(minutes=1), 10
_GRACE = timedelta(minutes=1)
"""Time for dequeues to reclaim expired leases, which they do a few at a time."""


@check(functions=("fq_queues", "fq_stats", "fq_now", "fq_trend"))
def check_queues(context: CheckContext) -> Iterator[Finding]:
    connection, schema = context.connection, context.schema
    names = sorted(read_queues(connection, schema))
    if context.queue is not None and context.queue not in names:
        yield Finding("queues", Level.PROBLEM, f"there is no queue {context.queue!r} in schema {schema!r}")
    elif not names:
        yield Finding("queues", Level.OK, "there is no queue yet")
    now = read_clock(connection, schema)
    wanted = [name for name in names if context.queue in {None, name}]
    counts = stats_by_queue(connection, schema, wanted)
    pasts = recent_pasts(connection, schema, counts.values(), now)
    for stats in counts.values():
        findings = list(judge_queue(stats, now, context.max_age, pasts.get(stats.queue, ())))
        if all(finding.check != "queues" for finding in findings):
            yield Finding("queues", Level.OK, _calm(stats, now), None, {"queue": stats.queue, "ready": stats.ready})
        yield from findings


@check("no expired lease holds messages", tables=("fq_lease", "fq_message"))
def check_leases(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("expired_leases", grace=microseconds(_GRACE), queue=context.queue):
        yield Finding(
            "leases", Level.PROBLEM,
            f"queue {row.queue!r}: {plural(row.leases, 'expired lease')} with messages, the oldest for "
            f"{format_duration(duration(row.overdue))}: no dequeue reclaims them",
            "start a worker: every dequeue reclaims expired leases",
            {"queue": row.queue, "leases": row.leases, "overdue_seconds": duration(row.overdue)},
        )  # fmt: skip


@check("a session listens for every consumer that waits", tables=("fq_lease",))
def check_waits(context: CheckContext) -> Iterator[Finding]:
    # A single sample would mislead: a worker that stops ends its wait a moment after its listener is gone.
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


_DIED_LATELY = timedelta(days=1)


def _calm(stats: QueueStats, now: datetime) -> str:
    waits = age(stats.oldest_ready_at, now)
    since = f", the oldest for {format_duration(waits)}" if waits is not None else ""
    back = _held_back(stats.paused, stats.limited)
    return f"queue {stats.queue!r}: {stats.ready:,} ready{since}{back}, {plural(stats.consumers, 'consumer')}"


def _held_back(paused: int, limited: int) -> str:
    words = ", ".join(f"{count:,} {word}" for count, word in ((paused, "paused"), (limited, "beyond limits")) if count)
    return f" ({words})" if words else ""


def recent_pasts(
    connection: Connection, schema: str | None, queues: Iterable[QueueStats], now: datetime
) -> dict[str, list[Point]]:
    """Return samples of the last ten minutes, then the present counts, for the ten queues with most ready messages."""
    found = {}
    for stats in nlargest(_MOST_READY, queues, key=lambda one: one.ready):
        points = read_points(connection, Target(schema, stats.queue), None, _PAST, _STEP) if stats.ready else []
        past = [Point(one.at, one.ready, one.oldest_wait or timedelta()) for one in points if one.ready is not None]
        found[stats.queue] = [*past, Point(now, stats.ready, behind(stats, now))]
    return found


def judge_queue(stats: QueueStats, now: datetime, max_age: timedelta, past: Sequence[Point] = ()) -> Iterator[Finding]:
    """Yield findings about a queue, the gravest first; ``values["state"]`` of each names the state in a few words.

    A queue counts as behind if the wait that :func:`behind` returns exceeds *max_age* now, and exceeded *max_age* at
    each point of *past* within the last minute. If only the present counted, the state of a queue whose wait is about
    *max_age* would change with each dequeue. *past* begins with the oldest point, and may be empty.
    """
    waits = age(stats.oldest_ready_at, now)
    values = {
        "queue": stats.queue, "ready": stats.ready, "deliverable": stats.deliverable, "paused": stats.paused,
        "limited": stats.limited, "dead": stats.dead, "signals": stats.signals, "consumers": stats.consumers,
        "oldest_ready_seconds": waits, "paused_at": stats.paused_at,
    }  # fmt: skip
    who = f"queue {stats.queue!r}"
    since = f", the oldest for {format_duration(waits)}" if waits is not None else ""
    name = f"--queue {shlex.quote(stats.queue)}"

    def warning(state: str, message: str, remedy: str) -> Finding:
        return Finding("queues", Level.WARNING, f"{who} {message}", remedy, values | {"state": state})

    if stats.paused_at is not None:
        message = f"is paused for {format_duration(now - stats.paused_at)}: {stats.ready:,} ready{since}"
        yield warning("paused", message, f"fairqueue resume {name}")
    elif not stats.consumers and (stats.ready > stats.paused or stats.leased):
        left = f", {stats.leased:,} out with consumers that are gone" if stats.leased else ""
        message = f"{who} has no consumer: {stats.ready:,} ready{since}{left}"
        yield Finding("queues", Level.PROBLEM, message, "start a worker", values | {"state": "no consumer"})
    elif min([behind(stats, now), *(point.behind for point in past if now - point.at <= _SETTLED)]) > max_age:
        message = f"is behind: {stats.deliverable:,} of {stats.ready:,} ready could be taken now{since}"
        remedy = f"start more workers, or see what its channels wait for: fairqueue channels --busy {name}"
        yield warning("behind", message, remedy)
    if (reached := _limit_reached(stats)) and stats.limited:
        option, words = reached
        message = f"is at its limit: {words}, {plural(stats.limited, 'ready message')} held back{since}"
        remedy = f"if what its handlers use bears more: fairqueue configure queue {name} {option} N"
        yield warning("at its limit", message, remedy)
    if growth := _growth(past):
        yield warning("growing", growth, f"start more workers, or see who enqueues: fairqueue top {name}")
    died = age(stats.last_died_at, now)
    if died is not None and died < _DIED_LATELY:
        message = f"has {plural(stats.dead, 'dead letter')}, the last died {format_duration(died)} ago"
        yield warning("dead letters", message, f"fairqueue dead groups {name}")
    if stats.signals > _MAX_SIGNALS:
        yield Finding(
            "signals", Level.WARNING,
            f"{who}: {stats.signals:,} signals that no dequeue has heard yet",
            "start a worker: every dequeue hears them first, some hundred thousand a second",
            values | {"state": "unheard"},
        )  # fmt: skip


def summary_of(
    queues: Collection[QueueStats], now: datetime, pasts: Mapping[str, Sequence[Point]] = MappingProxyType({})
) -> str:
    judged = (judge_queue(stats, now, LONG, pasts.get(stats.queue, ())) for stats in queues)
    return summary(list(chain.from_iterable(judged)), queues, now)


def summary(found: Sequence[Finding], queues: Collection[QueueStats], now: datetime) -> str:
    """Return a sentence about the worst finding; if there is no finding, about how many messages of the queues wait."""
    if found:
        worst = max(found, key=lambda finding: finding.level)
        more = f"; {plural(len(found) - 1, 'further finding')}" if len(found) > 1 else ""
        return f"{worst.message[:1].upper()}{worst.message[1:]}{more}."
    if not queues:
        return "No queue has been used yet."
    later, held = sum(queue.scheduled for queue in queues), sum(queue.held for queue in queues)
    if not (ready := sum(queue.ready for queue in queues)):
        words = [f"{plural(later, 'message')} for later, or for the next attempt after a failure"] if later else []
        words += [f"{plural(held, 'message')} behind others of the same ordering key"] if held else []
        return f"Nothing is ready; {'; '.join(words)}." if words else "All is calm: nothing waits."
    longest = max((wait for queue in queues if (wait := age(queue.oldest_ready_at, now))), default=None)
    since = f", the longest wait is {format_duration(longest)}" if longest else ""
    flows = "All flows" if any(queue.deliverable for queue in queues) else "All that is ready is held back"
    back = _held_back(sum(queue.paused for queue in queues), sum(queue.limited for queue in queues))
    return f"{flows}: {plural(ready, 'message')} ready{since}{back}."


def _limit_reached(stats: QueueStats) -> tuple[str, str] | None:
    used, cost = stats.current_concurrency or 0, stats.current_cost or 0
    if stats.max_concurrency is not None and used >= stats.max_concurrency:
        return "--max-concurrency", f"{used:,} of {plural(stats.max_concurrency, 'message')} out"
    # A message that costs more than the limit goes while nothing else is out.
    if stats.max_cost_out is not None and 0 < cost > stats.max_cost_out - (stats.next_cost or 0):
        return "--max-cost-out", f"a cost of {cost:,} of {stats.max_cost_out:,} out"
    return None


_SETTLED = timedelta(minutes=1)
_GROWTH_PERIOD = timedelta(minutes=1)
_GROWTH = 1.2
_FEW = 10


def _growth(past: Sequence[Point]) -> str | None:
    if not past or past[-1].at - past[0].at < _GROWTH_PERIOD:
        return None
    first, middle, last = (point.backlog for point in (past[0], past[len(past) // 2], past[-1]))
    if not first < middle < last or last < max(first * _GROWTH, first + _FEW):
        return None
    return f"grows: from {first:,} to {plural(last, 'message')} in {format_duration(past[-1].at - past[0].at)}"


_RECENT = timedelta(hours=1)
_OLDEST = 100_000


@check(
    "no kind died lately or fails again and again",
    functions=("fq_now", "fq_queues"),
    tables=("fq_message", "fq_dead_letter", "fq_channel"),
)
def check_kinds(context: CheckContext) -> Iterator[Finding]:
    found = context.execute("kinds", queue=context.queue, period=microseconds(_RECENT), attempts=AGAIN, most=_OLDEST)
    for row in found:
        facts = (
            (row.died, "died in the last hour"), (row.tried, f"failed {AGAIN} times or more"),
            (row.returned, f"given back {AGAIN} times or more, as by workers without a handler for the kind"),
        )  # fmt: skip
        words = ", ".join(f"{count:,} {fact}" for count, fact in facts if count)
        error = f": {row.error}" if row.error else ""
        yield Finding(
            "kinds", Level.WARNING,
            f"kind {row.kind!r} of queue {row.queue!r}: {words}{error:.200}",
            "start a worker that has a handler for the kind" if row.returned
            else f"fairqueue dead groups --queue {shlex.quote(row.queue)}",
            {"queue": row.queue, "kind": row.kind, "died": row.died, "tried": row.tried, "returned": row.returned},
        )  # fmt: skip


_HELD_LONG = timedelta(minutes=1)


@check("nobody keeps a queue from being dequeued", functions=("fq_dispatch_holders",))
def check_dispatchers(context: CheckContext) -> Iterator[Finding]:
    """Find who keeps the dispatch row of a queue locked, or blocks the session that has locked it."""
    for row in _held_dispatch_rows(context):
        yield _dispatcher(row, current_role(context.connection))


def _held_dispatch_rows(context: CheckContext) -> list[Row[Any]]:
    # A single sample would mislead: a dequeue locks the row for a moment, and so does a change of a limit.
    return persistent_rows(
        context.connection,
        lambda: {(row.queue, row.holder): row for row in context.execute("dispatchers", queue=context.queue)},
    )


def _dispatcher(row: Row[Any], role: str) -> Finding:
    keeps = "keeps its dispatch row"
    if row.waiting is not None:
        keeps = f"keeps backend {row.waiting} waiting, which has its dispatch row,"
    if row.pid is None:
        name = quoted_literal(str(row.gid))
        who = f"transaction {row.gid!r} of {row.role!r}"
        remedy = f"find out what became of it, then: commit prepared {name}; or: rollback prepared {name};"
    else:
        who = f"backend {row.pid} ({row.role or 'no role'}, {row.application_name or 'no name'})"
        remedy = f"end its transaction; if nobody can, or it is in none: select pg_terminate_backend({row.pid});"
    return Finding(
        "dispatchers",
        Level.PROBLEM if row.since is not None and row.since >= _HELD_LONG else Level.WARNING,
        f"queue {row.queue!r}: {who} {keeps} {_held_since(row, role)}: "
        "nobody hears of its new messages until it lets go",
        remedy,
        {
            "queue": row.queue, "pid": row.pid, "gid": row.gid, "user": row.role, "application": row.application_name,
            "state": row.state, "waiting": row.waiting, "open_seconds": row.since,
        },
    )  # fmt: skip


def _held_since(row: Row[Any], role: str) -> str:
    # No view shows the age of the lock on the dispatch row, so the words tell the age of its holder's transaction.
    if row.since is None:
        return f"for how long role {role!r} may not see" if row.hidden else "for how long is not known"
    if row.pid is None:
        return f"since it was prepared {format_duration(row.since)} ago"
    return f"and {'is idle' if row.idle else 'its transaction is open'} for {format_duration(row.since)}"


_SHOWN = 10


@check("every schedule is run", functions=("fq_schedules",))
def check_schedules(context: CheckContext) -> Iterator[Finding]:
    """Find schedules with a problem, and schedules with a slot that nobody has run for five minutes."""
    rows = context.execute("schedules", queue=context.queue).all()
    failing = [row for row in rows if row.problem is not None]
    overdue = [row for row in rows if row.problem is None]
    for row in failing[:_SHOWN]:
        yield Finding(
            "schedules", Level.WARNING,
            f"schedule {row.name!r} of channel {row.channel!r} of queue {row.queue!r} cannot be run: {row.problem}",
            "correct it by queue.schedules.set or fairqueue schedules set, with its kind and payload, "
            "or remove it by fairqueue schedules remove",
            {"queue": row.queue, "channel": row.channel, "name": row.name},
        )  # fmt: skip
    if len(failing) > _SHOWN:
        yield Finding(
            "schedules", Level.WARNING, f"{plural(len(failing) - _SHOWN, 'further schedule')} cannot be run",
            "see fairqueue schedules list", {"schedules": len(failing)},
        )  # fmt: skip
    if overdue:
        first = overdue[0]
        yield Finding(
            "schedules", Level.WARNING,
            f"{plural(len(overdue), 'schedule')} should have been run by now, such as {first.name!r} of channel "
            f"{first.channel!r} of queue {first.queue!r}",
            "start a worker of the queue, with the code that declares the schedule if that is in code; "
            "remove what is not wanted any more by fairqueue schedules remove",
            {"schedules": len(overdue)},
        )  # fmt: skip
