"""Open snapshots: vacuum cannot remove rows that died after the oldest of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.doctor.samples import persistent_rows
from sqlalchemy_fairqueue.cli.formats import format_duration
from sqlalchemy_fairqueue.cli.installation import current_role
from sqlalchemy_fairqueue.sql.schema import quoted, quoted_literal

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_WARNING_AGE = timedelta(minutes=5)
_PROBLEM_AGE = timedelta(hours=1)
_WARNING_TRANSACTIONS = 1_000_000
_PROBLEM_TRANSACTIONS = 50_000_000


def check_snapshots(context: CheckContext) -> Iterator[Finding]:
    """Open snapshots of sessions, prepared transactions and replication slots, with their age."""
    sessions = list(_sessions(context))
    reported = {finding.values["pid"] for finding in sessions}
    found = [*sessions, *_hidden(context, reported), *_prepared(context), *_slots(context)]
    yield from found
    if not found:
        yield Finding("snapshots", Level.OK, "no open snapshot holds vacuum back")


def _level(open_for: timedelta | None, transactions: int) -> Level:
    # The age of another role's transaction may be hidden; the number of later transactions is not.
    since = open_for or timedelta()
    if since >= _PROBLEM_AGE or transactions >= _PROBLEM_TRANSACTIONS:
        return Level.PROBLEM
    if since >= _WARNING_AGE or transactions >= _WARNING_TRANSACTIONS:
        return Level.WARNING
    return Level.OK


def _sessions(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("session_snapshots"):
        level = _level(row.open_for, row.transactions)
        if level is Level.OK:
            continue
        who = f"backend {row.pid} ({row.usename or row.backend_type}, {row.application_name or 'no name'})"
        does = f"is {row.state or 'active'} and holds" if row.backend_type else "holds"
        since = f"for {format_duration(row.open_for)}, " if row.open_for else ""
        yield Finding(
            "snapshots", level,
            f"{who} {does} a snapshot {since}{row.transactions:,} transactions old",
            f"end its transaction; if nobody can: select pg_terminate_backend({row.pid});",
            {
                "pid": row.pid, "user": row.usename, "application": row.application_name, "state": row.state,
                "open_seconds": row.open_for, "transactions": row.transactions,
            },
        )  # fmt: skip


def _hidden(context: CheckContext, reported: Collection[int]) -> Iterator[Finding]:
    def sample() -> dict[Hashable, Row[Any]]:
        return {row.pid: row for row in context.execute("hidden_sessions") if row.pid not in reported}

    # Other roles have short transactions at any moment.
    held = persistent_rows(context.connection, sample, _is_same)
    if not held:
        return
    role = current_role(context.connection)
    users = sorted({str(row.usename) for row in held})
    sessions = "1 session's snapshot" if len(held) == 1 else f"{len(held):,} sessions' snapshots"
    yield Finding(
        "snapshots", Level.WARNING,
        f"the age of {sessions} ({', '.join(users)}) is not visible to role {role!r}",
        f"grant pg_read_all_stats to {quoted(role)};",
        {"role": role, "hidden": len(held), "users": users, "pids": sorted(row.pid for row in held)},
    )  # fmt: skip


def _is_same(before: Row[Any], after: Row[Any]) -> bool:
    """Whether a session may still be in the same transaction, which keeps its id and its snapshot."""
    if before.xid is not None:
        return bool(before.xid == after.xid)
    return bool(before.xmin == after.xmin)


def _prepared(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("prepared_transactions"):
        level = _level(row.open_for, row.transactions)
        if level is Level.OK:
            continue
        name = quoted_literal(row.gid)
        yield Finding(
            "snapshots", level,
            f"transaction {row.gid!r} of {row.owner!r} was prepared {format_duration(row.open_for)} ago and is still "
            "open, with its locks",
            f"find out what became of it, then: commit prepared {name}; or: rollback prepared {name};",
            {"gid": row.gid, "owner": row.owner, "open_seconds": row.open_for, "transactions": row.transactions},
        )  # fmt: skip


def _slots(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("replication_slots"):
        # A logical slot holds back rows of the catalog alone, and none of the queue's tables.
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
