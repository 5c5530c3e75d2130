"""Checks the server: version, platform, clock, connections, sizes, whether it takes writes, whether vacuum keeps up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.doctor.findings import Finding, Level, check, persistent_rows
from sqlalchemy_fairqueue.doctor.installation import current_role
from sqlalchemy_fairqueue.formats import format_duration
from sqlalchemy_fairqueue.sql.schema import quoted, quoted_literal
from sqlalchemy_fairqueue.times import duration

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Sequence

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.doctor.findings import CheckContext


OLDEST_MAJOR = 15
_CLOCK_TOLERANCE = timedelta(seconds=2)
_HALF = 0.5


@check(any_version=True)
def check_server(context: CheckContext) -> Iterator[Finding]:
    """Check the version of the server, and whether it takes writes and notifications."""
    row = context.execute("server").one()
    values = {"version": row.version}
    if row.number // 10_000 < OLDEST_MAJOR:
        yield Finding(
            "server", Level.PROBLEM, f"PostgreSQL {row.version} is too old",
            f"upgrade to PostgreSQL {OLDEST_MAJOR} or newer", values,
        )  # fmt: skip
    else:
        yield Finding("server", Level.OK, f"PostgreSQL {row.version}", None, values)
    if row.standby:
        yield Finding(
            "server", Level.PROBLEM, "the server is a standby: nothing can be enqueued or dequeued on it",
            "connect to the primary (target_session_attrs=read-write in the URL)",
        )  # fmt: skip
    elif row.read_only:
        yield Finding(
            "server", Level.PROBLEM, "transactions of this role are read-only by default",
            "set default_transaction_read_only = off for the role or the database",
        )  # fmt: skip
    if row.notifications > _HALF:
        yield Finding(
            "notifications", Level.WARNING,
            f"the notification queue of the server is {row.notifications:.0%} full; when it is full, commits that "
            "notify fail",
            "end the transaction of the session that listens and has been idle in a transaction for long",
            {"usage": row.notifications},
        )  # fmt: skip


@check(any_version=True)
def check_clock(context: CheckContext) -> Iterator[Finding]:
    before = datetime.now(UTC)
    server_time = context.execute("clock").scalar_one()
    after = datetime.now(UTC)
    # The server read its clock between *before* and *after*; a server time between them counts as no difference.
    ahead = server_time - after if server_time > after else min(server_time - before, timedelta())
    values = {"server_ahead_seconds": ahead.total_seconds(), "round_trip_seconds": (after - before).total_seconds()}
    if abs(ahead) > _CLOCK_TOLERANCE:
        which = "ahead of" if ahead > timedelta() else "behind"
        yield Finding(
            "clock", Level.WARNING,
            f"the server's clock is {format_duration(abs(ahead))} {which} this machine's",
            "synchronise both (NTP); the queue goes by the server's, so that only enqueue(at=...) of this machine and "
            "times in its logs are off",
            values,
        )  # fmt: skip
    else:
        yield Finding("clock", Level.OK, "the clocks of the server and of this machine agree", None, values)


_PAGE = "see the page on servers of the documentation"


@dataclass(frozen=True, slots=True)
class Platform:
    """A server that is not quite PostgreSQL: how well queues work on it, what differs, and what to do about that."""

    name: str
    level: Level
    message: str
    remedy: str


_OF_VERSION = {
    "-YB-": Platform(
        "YugabyteDB", Level.PROBLEM, "it has no ctid, by which a delivery proves that its row is the one it took",
        "put the queue into a PostgreSQL beside it",
    ),
    "CockroachDB": Platform(
        "CockroachDB", Level.PROBLEM, "it has neither ctid nor NOTIFY", "put the queue into a PostgreSQL beside it"
    ),
    "Redshift": Platform(
        "Amazon Redshift", Level.PROBLEM, "it locks no rows", "put the queue into a PostgreSQL beside it"
    ),
    "Greenplum": Platform(
        "Greenplum", Level.PROBLEM, "it spreads rows over segments, each with row ids of its own",
        "put the queue into a PostgreSQL beside it",
    ),
}  # fmt: skip
_OF_MARK = {
    "aurora": Platform(
        "Amazon Aurora", Level.OK, "its storage is its own, its rows and locks are PostgreSQL's",
        "connect workers to the writer endpoint, not through RDS Proxy, and reconnects follow a failover",
    ),
    "alloydb": Platform(
        "AlloyDB", Level.OK, "its storage is its own, its rows and locks are PostgreSQL's",
        "keep the queue's tables out of the columnar engine; connect workers to the primary instance",
    ),
    "neon": Platform(
        "Neon", Level.OK, "its storage is its own, its rows and locks are PostgreSQL's",
        "connect workers to the endpoint without '-pooler'; one that listens keeps the compute awake",
    ),
    "citus": Platform(
        "Citus", Level.OK, "the queue's tables are local tables of the node that it is installed on",
        "distribute none of them, and connect to this node",
    ),
}  # fmt: skip


def recognise(version: str, marks: Sequence[str]) -> Platform | None:
    """Return the platform that ``version()`` or one of *marks* (such as "citus") names; None for PostgreSQL itself."""
    for part, platform in _OF_VERSION.items():
        if part in version:
            return platform
    return next((_OF_MARK[mark] for mark in marks if mark in _OF_MARK), None)


def is_pooler(host: str) -> bool:
    """Return whether a host is named like a transaction pooler of Neon and others."""
    return host.partition(".")[0].endswith("-pooler")


@check(any_version=True)
def check_platform(context: CheckContext) -> Iterator[Finding]:
    """Find a server that is not quite PostgreSQL, a pooler before it, and tables that are no local heap tables."""
    row = context.execute("platform", schema=context.schema).one()
    platform = recognise(row.version, row.marks)
    if platform is not None:
        yield Finding(
            "platform", platform.level, f"the server is {platform.name}: {platform.message} ({_PAGE})",
            platform.remedy, {"platform": platform.name},
        )  # fmt: skip
    host = context.connection.engine.url.host or ""
    if is_pooler(host):
        yield Finding(
            "platform", Level.WARNING, f"{host} is a transaction pooler, over which no worker can listen",
            "connect workers to the endpoint without '-pooler', or give them listen=False; prepared statements: "
            "see the page on drivers of the documentation",
            {"host": host},
        )  # fmt: skip
    for table, method in row.other_methods:
        yield Finding(
            "platform", Level.PROBLEM,
            f"table {table} is kept by access method {method}: row ids prove deliveries only in PostgreSQL's own, heap",
            f"alter table {quoted(context.schema)}.{table} set access method heap;", {"table": table, "method": method},
        )  # fmt: skip
    if "citus" in row.marks and row.has_distribution:
        for table in context.execute("distributed_tables", schema=context.schema).scalars():
            yield Finding(
                "platform", Level.PROBLEM, f"Citus has distributed table {table}: the queue's functions need it local",
                f"select undistribute_table({quoted_literal(f'{quoted(context.schema)}.{table}')});", {"table": table},
            )  # fmt: skip


HOT_TABLES = ("fq_message", "fq_signal", "fq_channel_state", "fq_lease", "fq_queue_state", "fq_promotion")
_MAX_DEAD_ROWS = 50_000


@check()
def check_vacuum(context: CheckContext) -> Iterator[Finding]:
    settings = context.execute("vacuum_settings").one()
    if not settings.autovacuum or not settings.counts:
        name = "autovacuum" if not settings.autovacuum else "track_counts"
        yield Finding(
            "autovacuum", Level.PROBLEM,
            f"{name} is off on this server: dead rows pile up and every dequeue reads more of them",
            f"alter system set {name} = on; select pg_reload_conf();",
        )  # fmt: skip
    for row in context.execute("vacuum_tables", schema=context.schema, tables=list(HOT_TABLES)):
        yield _table(context.schema, row)


def _table(schema: str, row: Row[Any]) -> Finding:
    values = {
        "table": row.table, "dead_rows": row.dead, "live_rows": row.live, "vacuumed_at": row.vacuumed_at,
        "scale_factor": row.factor, "threshold": row.threshold,
    }  # fmt: skip
    name = f"{quoted(schema)}.{row.table}"
    when = f"vacuumed {format_duration(row.ago)} ago" if row.ago else "never vacuumed"
    message = f"{row.table}: {row.dead:,} dead rows, {when}"
    if not row.enabled:
        remedy = f"alter table {name} reset (autovacuum_enabled);"
        return Finding("autovacuum", Level.PROBLEM, f"{message}; autovacuum is off for it", remedy, values)
    # With five times the dead rows that start an autovacuum, and many in all, vacuum does not keep up, or cannot.
    if row.dead > max(_MAX_DEAD_ROWS, 5 * (row.threshold + row.factor * row.live)):
        remedy = f"see the findings about snapshots; if there are none: vacuum {name};"
        return Finding("autovacuum", Level.WARNING, f"{message}: vacuum does not keep up", remedy, values)
    return Finding("autovacuum", Level.OK, message, None, values)


_NEAR, _FULL = 0.8, 0.95


@check()
def check_connections(context: CheckContext) -> Iterator[Finding]:
    row = context.execute("connections").one()
    part = row.used / max(1, row.most)
    level = Level.PROBLEM if part >= _FULL else Level.WARNING if part >= _NEAR else Level.OK
    yield Finding(
        "connections", level, f"{row.used:,} of {row.most:,} connections are in use",
        "give workers and applications smaller pools, put a pooler before the server, or raise max_connections"
        if level else None,
        {"used": row.used, "most": row.most},
    )  # fmt: skip


_LARGEST = 3
_LARGE = 100 * 2**20
"""The checks name a table or an index of at least this many bytes, and a table that grew by at least as many."""


@check()
def check_sizes(context: CheckContext) -> Iterator[Finding]:
    rows = context.execute("sizes", schema=context.schema).all()
    tables = {row.name: row.bytes for row in rows if not row.is_index}
    large = {row.name: row.bytes for row in rows if row.is_index and row.bytes >= _LARGE}
    named = [*(one for n, one in enumerate(tables.items()) if n < _LARGEST or one[1] >= _LARGE), *large.items()]
    words = ", ".join(f"{name} {_megabytes(size)}" for name, size in named)
    message = f"the tables take {_megabytes(sum(tables.values()))}: {words}"
    yield Finding("sizes", Level.OK, message, None, tables | large)


_MUCH = 2**30


@check(functions=("fq_growth",))
def check_growth(context: CheckContext) -> Iterator[Finding]:
    """Find large tables that grew by 100 MB or more within the last day, by the sizes that workers note each hour."""
    rows = [row for row in context.execute("growth") if row.grown >= _LARGE]
    for row in rows:
        period = format_duration(duration(row.period))
        level = Level.WARNING if row.grown >= max(_MUCH, (row.bytes - row.grown) / 2) else Level.OK
        yield Finding(
            "growth", level,
            f"{row.name} grew by {_megabytes(row.grown)} within {period}, to {_megabytes(row.bytes)}",
            "see the backlogs, dead letters and the retention of the history: fairqueue stats" if level else None,
            {"table": row.name, "bytes": row.bytes, "grown": row.grown, "period_seconds": duration(row.period)},
        )  # fmt: skip


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MB"


_WARNING_AGE = timedelta(minutes=1)
_PROBLEM_AGE = timedelta(hours=1)
_WARNING_TRANSACTIONS = 1_000_000
_PROBLEM_TRANSACTIONS = 50_000_000


@check("no open snapshot holds vacuum back")
def check_snapshots(context: CheckContext) -> Iterator[Finding]:
    sessions = list(_sessions(context))
    reported = {finding.values["pid"] for finding in sessions}
    yield from (*sessions, *_hidden_snapshots(context, reported), *_prepared(context), *_slots(context))


def _level(open_for: timedelta | None, transactions: int) -> Level:
    # The age of another role's transaction may be hidden; how many transactions began after it is not.
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


def _hidden_snapshots(context: CheckContext, reported: Collection[int]) -> Iterator[Finding]:
    def sample() -> dict[Hashable, Row[Any]]:
        return {row.pid: row for row in context.execute("hidden_sessions") if row.pid not in reported}

    # A single sample would mislead: other roles have short transactions at any moment.
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
