"""Who keeps a queue's gate: while it is held alone, or somebody waits to have it alone, no dequeue takes anything."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.doctor.lasting import lasting
from sqlalchemy_fairqueue.cli.printing import duration_words
from sqlalchemy_fairqueue.sql import quoted_literal
from sqlalchemy_fairqueue.statements.building import qualifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

_PROBLEM_AGE = timedelta(minutes=1)

# Whoever waits to have the gate alone is passed by no dequeue either: then it is kept by those who share it.
# Of another role's session this role may see neither what it is nor since when. A prepared transaction has no session,
# and is known by the lock on its id: its virtual id is its session's until the server starts anew, and another then.
_KEPT = (
    "with gate as (select q.name as queue, {schema}fq_gate_key(q.name) as key from {schema}fq_queues() q(name) "
    "where cast(:queue as text) is null or q.name = :queue), "
    "tried as (select (l.classid::bigint << 32) | l.objid::bigint as key, l.mode = 'ExclusiveLock' as alone, "
    "l.granted, l.pid, l.virtualtransaction from pg_locks l where l.locktype = 'advisory' and l.objsubid = 1 "
    "and l.database = (select d.oid from pg_database d where d.datname = current_database())) "
    "select g.queue, l.pid, l.alone, p.gid, coalesce(a.usename, p.owner) as role, a.application_name, a.state, "
    "a.backend_type is null as hidden, a.xact_start is null as idle, "
    "clock_timestamp() - coalesce(a.xact_start, a.state_change, p.prepared) as since, "
    "(select min(w.pid) from tried w where w.key = l.key and w.alone and not w.granted) as waiting "
    "from gate g join tried l on l.key = g.key left join pg_stat_activity a on a.pid = l.pid "
    "left join lateral (select x.gid, x.owner, x.prepared from pg_prepared_xacts x "
    "join pg_locks t on t.locktype = 'transactionid' and t.transactionid = x.transaction "
    "where l.pid is null and t.pid is null and t.virtualtransaction = l.virtualtransaction) p on true "
    "where l.granted and (l.pid is not null or p.gid is not null) "
    "and (l.alone or exists (select from tried w where w.key = l.key and w.alone and not w.granted)) "
    "order by g.queue, l.pid, p.gid"
)


def check_gates(examined: Examination) -> Iterator[Finding]:
    """Sessions and prepared transactions that keep every dequeue of a queue from taking anything."""
    held = _held(examined)
    for row in held:
        yield _finding(row, str(examined.connection.scalar(text("select current_user"))))
    if not held:
        yield Finding("gates", Level.OK, "nobody keeps a queue from being dequeued")


def _held(examined: Examination) -> list[Row[Any]]:
    # A change of a limit is over in a moment.
    query, parameters = text(_KEPT.replace("{schema}", qualifier(examined.schema))), {"queue": examined.queue}
    return lasting(
        examined.connection,
        lambda: {(row.queue, row.pid, row.gid): row for row in examined.connection.execute(query, parameters)},
    )


def _finding(row: Row[Any], role: str) -> Finding:
    keeps = "holds its gate" if row.alone else f"shares its gate, which backend {row.waiting} waits to close,"
    if row.pid is None:
        name = quoted_literal(str(row.gid))
        who, remedy = (
            f"transaction {row.gid!r} of {row.role!r}",
            f"commit prepared {name}; or: rollback prepared {name};",
        )
        remedy = f"find out what became of it, then: {remedy}"
    else:
        who = f"backend {row.pid} ({row.role or 'no role'}, {row.application_name or 'no name'})"
        remedy = f"end its transaction; if nobody can, or it is in none: select pg_terminate_backend({row.pid});"
    return Finding(
        "gates",
        Level.PROBLEM if row.since is not None and row.since >= _PROBLEM_AGE else Level.WARNING,
        f"queue {row.queue!r}: {who} {keeps} {_since(row, role)}: nothing can be dequeued until it lets go",
        remedy,
        {
            "queue": row.queue, "pid": row.pid, "gid": row.gid, "user": row.role, "application": row.application_name,
            "state": row.state, "alone": row.alone, "waiting": None if row.alone else row.waiting,
            "open_seconds": row.since,
        },
    )  # fmt: skip


def _since(row: Row[Any], role: str) -> str:
    """As far as it can be known: when a lock was taken is not recorded, only since when its owner does what it does."""
    if row.since is None:
        return f"for how long role {role!r} may not see" if row.hidden else "for how long is not known"
    if row.pid is None:
        return f"since it was prepared {duration_words(row.since)} ago"
    return f"and {'is idle' if row.idle else 'its transaction is open'} for {duration_words(row.since)}"
