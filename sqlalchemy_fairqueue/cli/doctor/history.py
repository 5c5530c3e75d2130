"""The history: partitions made ahead, nothing in the default one, transactions of this server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.printing import counted
from sqlalchemy_fairqueue.sql import quoted
from sqlalchemy_fairqueue.statements.building import qualifier
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

_REMEDY = "fairqueue history prune; a worker does it by itself if its role owns the tables"
_MOST_COUNTED = 100_000

_PARTITIONS = text(
    "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid "
    "join pg_class p on p.oid = i.inhparent join pg_namespace n on n.oid = p.relnamespace "
    "where n.nspname = :schema and p.relname = 'fq_history' and c.relname ~ '^fq_history_p[0-9]{8}$' order by 1"
)
_STATE = (
    "select (select count(*) from {schema}fq_queue q where q.history) as queues, {schema}fq_now() as now, "
    # Workers need no right on a partition, and a missing one is no reason to complain.
    "(select has_table_privilege(c.oid, 'select') from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = :schema and c.relname = 'fq_history_default') as readable"
)
_SHOWN = text(
    "select has_table_privilege(c.oid, 'select') from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = :schema and c.relname = 'fq_history'"
)
# In this order by the index, however many rows there are: as a rule it ends at the first of each partition.
_FOREIGN = (
    "select count(*) from (select from {schema}fq_history h "
    "where h.recorded_xid >= pg_snapshot_xmax(pg_current_snapshot()) "
    "order by h.recorded_xid desc, h.id desc limit :most) s"
)
_STRAYS = "select count(*) from (select from {schema}fq_history_default limit :most) s"


def check_history(examined: Examination) -> Iterator[Finding]:
    """Whether tomorrow's partition is there, whether rows went to the default one, and whether all can be read."""
    yield from _partitions(examined)
    yield from _transactions(examined)


def _transactions(examined: Examination) -> Iterator[Finding]:
    # Readers go by transaction ids. What privileges are missing is told elsewhere.
    connection, schema = examined.connection, qualifier(examined.schema)
    if not connection.scalar(_SHOWN, {"schema": examined.schema}):
        return
    foreign = connection.scalar(text(_FOREIGN.replace("{schema}", schema)), {"most": _MOST_COUNTED})
    if foreign:
        at_least = "at least " if foreign == _MOST_COUNTED else ""
        yield Finding(
            "history", Level.PROBLEM,
            f"{at_least}{counted(foreign, 'row')} of the history with transaction ids that this server has not come "
            "to, as after a restore: archives and Spark do not see them, and top counts them again and again",
            f"update {quoted(examined.schema)}.fq_history set recorded_xid = pg_current_xact_id() "  # noqa: S608 (quoted)
            "where recorded_xid >= pg_snapshot_xmax(pg_current_snapshot());",
            {"foreign": foreign},
        )  # fmt: skip


def _partitions(examined: Examination) -> Iterator[Finding]:
    connection, schema = examined.connection, qualifier(examined.schema)
    row = connection.execute(text(_STATE.replace("{schema}", schema)), {"schema": examined.schema}).one()
    strays = None
    if row.readable:
        strays = connection.scalar(text(_STRAYS.replace("{schema}", schema)), {"most": _MOST_COUNTED})
    days = [_day(name) for name in connection.scalars(_PARTITIONS, {"schema": examined.schema})]
    today = instant(row.now).replace(hour=0, minute=0, second=0, microsecond=0)
    ahead = sum(day > today for day in days)
    values = {"queues": row.queues, "partitions": len(days), "ahead": ahead, "strays": strays}
    if strays:
        at_least = "at least " if strays == _MOST_COUNTED else ""
        yield Finding(
            "history", Level.WARNING,
            f"{at_least}{counted(strays, 'row')} of the history in its default partition, as their day had none",
            _REMEDY, values,
        )  # fmt: skip
    if row.queues and (not ahead or today not in days):
        missing = today if today not in days else today + timedelta(days=1)
        yield Finding(
            "history", Level.WARNING, f"the history has no partition for {missing:%Y-%m-%d}", _REMEDY, values
        )  # fmt: skip
    elif not strays:
        kept = f"{counted(row.queues, 'queue')}, partitions of {counted(len(days), 'day')}, {ahead:,} of them ahead"
        yield Finding("history", Level.OK, kept if row.queues else "no queue records its history", None, values)


def _day(partition: str) -> datetime:
    return datetime.strptime(partition[-8:], "%Y%m%d").replace(tzinfo=UTC)
