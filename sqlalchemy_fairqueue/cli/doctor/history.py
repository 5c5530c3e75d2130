"""The history: its partitions, rows in the default one, and transaction ids of another server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import plural
from sqlalchemy_fairqueue.sql.schema import quoted
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_REMEDY = "fairqueue history prune; a worker does it by itself if its role may execute fq_keep_history"
_MAX_COUNTED = 100_000


def check_history(context: CheckContext) -> Iterator[Finding]:
    """Whether tomorrow's partition exists, rows are in the default one, and readers find all rows."""
    yield from _partitions(context)
    yield from _impostors(context)
    yield from _transactions(context)


def _impostors(context: CheckContext) -> Iterator[Finding]:
    found = context.execute("history_impostors", schema=context.schema).all()
    if found:
        names, owners = [row.name for row in found], sorted({row.owner for row in found})
        yield Finding(
            "history", Level.WARNING,
            f"{plural(len(found), 'relation')} with the name of a partition of the history that is none ({names[0]}, "
            f"which belongs to {found[0].owner!r}): the housekeeping gives the partition of that day another name",
            f"rename or drop it, and run: revoke create on schema {quoted(context.schema)} from {quoted(owners[0])};",
            {"relations": names, "owners": owners},
        )  # fmt: skip


def _transactions(context: CheckContext) -> Iterator[Finding]:
    # Readers go by transaction ids. Missing privileges are the finding of another check.
    if not context.execute("history_readable", schema=context.schema).scalar():
        return
    foreign = context.execute("history_foreign", most=_MAX_COUNTED).scalar()
    if foreign:
        at_least = "at least " if foreign == _MAX_COUNTED else ""
        yield Finding(
            "history", Level.PROBLEM,
            f"{at_least}{plural(foreign, 'row')} of the history with transaction ids that this server has not come "
            "to, as after a restore: archives and Spark do not see them, and top counts them again and again",
            f"update {quoted(context.schema)}.fq_history set recorded_xid = pg_current_xact_id() "  # noqa: S608 (quoted)
            "where recorded_xid >= pg_snapshot_xmax(pg_current_snapshot());",
            {"foreign": foreign},
        )  # fmt: skip


def _partitions(context: CheckContext) -> Iterator[Finding]:
    row = context.execute("history_state", schema=context.schema).one()
    strays = None
    if row.readable:
        strays = context.execute("history_strays", most=_MAX_COUNTED).scalar()
    days = [_day(name) for name in context.execute("history_partitions", schema=context.schema).scalars()]
    today = instant(row.now).replace(hour=0, minute=0, second=0, microsecond=0)
    ahead = sum(day > today for day in days)
    values = {"queues": row.queues, "partitions": len(days), "ahead": ahead, "strays": strays}
    if strays:
        at_least = "at least " if strays == _MAX_COUNTED else ""
        yield Finding(
            "history", Level.WARNING,
            f"{at_least}{plural(strays, 'row')} of the history in its default partition, as their day had none",
            _REMEDY, values,
        )  # fmt: skip
    if row.queues and (not ahead or today not in days):
        missing = today if today not in days else today + timedelta(days=1)
        yield Finding(
            "history", Level.WARNING, f"the history has no partition for {missing:%Y-%m-%d}", _REMEDY, values
        )  # fmt: skip
    elif not strays:
        kept = f"{plural(row.queues, 'queue')}, partitions of {plural(len(days), 'day')}, {ahead:,} of them ahead"
        yield Finding("history", Level.OK, kept if row.queues else "no queue records its history", None, values)


def _day(partition: str) -> datetime:
    return datetime.strptime(partition.removeprefix("fq_history_p")[:8], "%Y%m%d").replace(tzinfo=UTC)
