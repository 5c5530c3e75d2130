"""Gates of queues: rows that each dequeue of a queue without a limit locks one of, and a change of the limit all of.

While a transaction that changes the limit is open, or waits for a dequeue that is, the queue delivers nothing. While a
dequeue that attends to the queue is open, nobody else hears of new messages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.doctor.samples import persistent_rows
from sqlalchemy_fairqueue.cli.formats import format_duration
from sqlalchemy_fairqueue.cli.installation import current_role
from sqlalchemy_fairqueue.sql.schema import quoted_literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_PROBLEM_AGE = timedelta(minutes=1)


def check_gates(context: CheckContext) -> Iterator[Finding]:
    """Sessions and prepared transactions that hold the gate of a queue."""
    held = _held(context)
    for row in held:
        yield _finding(row, current_role(context.connection))
    if not held:
        yield Finding("gates", Level.OK, "nobody keeps a queue from being dequeued")


def _held(context: CheckContext) -> list[Row[Any]]:
    # A change of a limit holds the gate for a moment only, and so does a dequeue.
    return persistent_rows(
        context.connection,
        lambda: {(row.queue, row.holder): row for row in context.execute("gates", queue=context.queue)},
    )


def _finding(row: Row[Any], role: str) -> Finding:
    until = "nothing can be dequeued until it lets go"
    if row.alone:
        keeps = "holds its gate"
    elif row.waiting is not None:
        keeps = f"shares its gate, for which backend {row.waiting} waits,"
    else:
        keeps, until = "attends to it", "nobody hears of its new messages until it lets go"
    if row.pid is None:
        name = quoted_literal(str(row.gid))
        who = f"transaction {row.gid!r} of {row.role!r}"
        remedy = f"find out what became of it, then: commit prepared {name}; or: rollback prepared {name};"
    else:
        who = f"backend {row.pid} ({row.role or 'no role'}, {row.application_name or 'no name'})"
        remedy = f"end its transaction; if nobody can, or it is in none: select pg_terminate_backend({row.pid});"
    return Finding(
        "gates",
        Level.PROBLEM if row.since is not None and row.since >= _PROBLEM_AGE else Level.WARNING,
        f"queue {row.queue!r}: {who} {keeps} {_since(row, role)}: {until}",
        remedy,
        {
            "queue": row.queue, "pid": row.pid, "gid": row.gid, "user": row.role, "application": row.application_name,
            "state": row.state, "alone": row.alone, "waiting": None if row.alone else row.waiting,
            "open_seconds": row.since,
        },
    )  # fmt: skip


def _since(row: Row[Any], role: str) -> str:
    """For how long, as far as PostgreSQL tells: it records the age of the owner's state, not that of the lock."""
    if row.since is None:
        return f"for how long role {role!r} may not see" if row.hidden else "for how long is not known"
    if row.pid is None:
        return f"since it was prepared {format_duration(row.since)} ago"
    return f"and {'is idle' if row.idle else 'its transaction is open'} for {format_duration(row.since)}"
