"""Who holds vacuum back: while a snapshot is open, nothing that died after it can be taken away."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.doctor.lasting import lasting
from sqlalchemy_fairqueue.cli.printing import duration_words
from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

_WARNING_AGE = timedelta(minutes=5)
_PROBLEM_AGE = timedelta(hours=1)
_WARNING_TRANSACTIONS = 1_000_000
_PROBLEM_TRANSACTIONS = 50_000_000

_HOLDING = "pid <> pg_backend_pid() and (backend_xmin is not null or backend_xid is not null)"
# Snapshots of other databases do not hold ours back; walsenders and slots do. Of another role's session this role may
# see neither what it is nor since when, so that it is known by less: one without a role is autovacuum's, and one
# without a database a walsender.
_SESSIONS = text(
    "select pid, usename, application_name, state, backend_type, clock_timestamp() - xact_start as open_for, "  # noqa: S608 (constants)
    "greatest(age(backend_xmin), age(backend_xid)) as transactions "
    f"from pg_stat_activity where {_HOLDING} "
    "and (datname = current_database() or backend_type = 'walsender' or (backend_type is null and datid is null)) "
    "and (backend_type <> 'autovacuum worker' or (backend_type is null and usesysid is not null)) "
    "order by transactions desc limit 20"
)
_HIDDEN = text(
    "select pid, usename, backend_xmin::text as xmin, backend_xid::text as xid "  # noqa: S608 (constants)
    f"from pg_stat_activity where {_HOLDING} "
    "and datname = current_database() and usesysid is not null and xact_start is null and backend_type is null"
)
_PREPARED = text(
    "select gid, owner, clock_timestamp() - prepared as open_for, age(transaction) as transactions "
    "from pg_prepared_xacts where database = current_database() order by prepared limit 20"
)
_SLOTS = text(
    "select slot_name, active, greatest(age(xmin), age(catalog_xmin)) as transactions, age(xmin) as held "
    "from pg_replication_slots where (xmin is not null or catalog_xmin is not null) "
    "and (database is null or database = current_database()) order by transactions desc limit 20"
)


def check_snapshots(examined: Examination) -> Iterator[Finding]:
    """Open snapshots of sessions, prepared transactions and replication slots, with their age."""
    sessions = list(_sessions(examined.connection))
    told = {finding.values["pid"] for finding in sessions}
    found = [*sessions, *_hidden(examined.connection, told), *_prepared(examined), *_slots(examined)]
    yield from found
    if not found:
        yield Finding("snapshots", Level.OK, "no open snapshot holds vacuum back")


def _level(open_for: timedelta | None, transactions: int) -> Level:
    # Others' start times may be hidden from this role; how many transactions came after is not.
    since = open_for or timedelta()
    if since >= _PROBLEM_AGE or transactions >= _PROBLEM_TRANSACTIONS:
        return Level.PROBLEM
    if since >= _WARNING_AGE or transactions >= _WARNING_TRANSACTIONS:
        return Level.WARNING
    return Level.OK


def _sessions(connection: Connection) -> Iterator[Finding]:
    for row in connection.execute(_SESSIONS):
        level = _level(row.open_for, row.transactions)
        if level is Level.OK:
            continue
        who = f"backend {row.pid} ({row.usename or row.backend_type}, {row.application_name or 'no name'})"
        does = f"is {row.state or 'active'} and holds" if row.backend_type else "holds"
        since = f"for {duration_words(row.open_for)}, " if row.open_for else ""
        yield Finding(
            "snapshots", level,
            f"{who} {does} a snapshot {since}{row.transactions:,} transactions old",
            f"end its transaction; if nobody can: select pg_terminate_backend({row.pid});",
            {
                "pid": row.pid, "user": row.usename, "application": row.application_name, "state": row.state,
                "open_seconds": row.open_for, "transactions": row.transactions,
            },
        )  # fmt: skip


def _hidden(connection: Connection, told: Collection[int]) -> Iterator[Finding]:
    def look() -> dict[Hashable, Row[Any]]:
        return {row.pid: row for row in connection.execute(_HIDDEN) if row.pid not in told}

    # Short transactions of other roles are there at any moment.
    held = lasting(connection, look, _same)
    if not held:
        return
    role = str(connection.scalar(text("select current_user")))
    users = sorted({str(row.usename) for row in held})
    sessions = "1 session's snapshot" if len(held) == 1 else f"{len(held):,} sessions' snapshots"
    yield Finding(
        "snapshots", Level.WARNING,
        f"the age of {sessions} ({', '.join(users)}) is not visible to role {role!r}",
        f"grant pg_read_all_stats to {quoted(role)};",
        {"role": role, "hidden": len(held), "users": users, "pids": sorted(row.pid for row in held)},
    )  # fmt: skip


def _same(before: Row[Any], after: Row[Any]) -> bool:
    """Whether a session may be in the transaction that it was seen in before: it keeps its id, if it has one."""
    if before.xid is not None:
        return bool(before.xid == after.xid)
    return bool(before.xmin == after.xmin)


def _prepared(examined: Examination) -> Iterator[Finding]:
    for row in examined.connection.execute(_PREPARED):
        level = _level(row.open_for, row.transactions)
        if level is Level.OK:
            continue
        name = "'" + row.gid.replace("'", "''") + "'"
        yield Finding(
            "snapshots", level,
            f"transaction {row.gid!r} of {row.owner!r} was prepared {duration_words(row.open_for)} ago and is still "
            "open, with its locks",
            f"find out what became of it, then: commit prepared {name}; or: rollback prepared {name};",
            {"gid": row.gid, "owner": row.owner, "open_seconds": row.open_for, "transactions": row.transactions},
        )  # fmt: skip


def _slots(examined: Examination) -> Iterator[Finding]:
    for row in examined.connection.execute(_SLOTS):
        # A logical slot holds back the catalog alone, which does no harm to the queue's tables.
        level = _level(None, row.held or 0)
        if level is Level.OK:
            continue
        yield Finding(
            "snapshots", level,
            f"replication slot {row.slot_name!r} ({'in use' if row.active else 'used by nobody'}) holds rows back that "
            f"died {row.held:,} transactions ago",
            "let its standby catch up"
            if row.active
            else f"if nobody needs it any more: select pg_drop_replication_slot('{row.slot_name}');",
            {"slot": row.slot_name, "active": row.active, "transactions": row.held},
        )  # fmt: skip
