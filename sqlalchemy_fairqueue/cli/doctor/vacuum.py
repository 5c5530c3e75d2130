"""Autovacuum of the tables that change all the time, and their dead rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import format_duration
from sqlalchemy_fairqueue.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

HOT_TABLES = ("fq_message", "fq_signal", "fq_channel_state", "fq_lease", "fq_queue_state", "fq_promotion")
_MAX_DEAD_ROWS = 50_000


def check_vacuum(context: CheckContext) -> Iterator[Finding]:
    """Whether vacuum removes the dead rows that every update and delete leaves."""
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
    # Five times the rows that start a vacuum, and many in absolute terms: vacuum does not keep up, or cannot.
    if row.dead > max(_MAX_DEAD_ROWS, 5 * (row.threshold + row.factor * row.live)):
        remedy = f"see the findings about snapshots; if there are none: vacuum {name};"
        return Finding("autovacuum", Level.WARNING, f"{message}: vacuum does not keep up", remedy, values)
    return Finding("autovacuum", Level.OK, message, None, values)
