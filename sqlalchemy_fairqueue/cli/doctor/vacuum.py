"""Autovacuum of the tables that change all the time, and the dead rows in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.printing import duration_words
from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

HOT_TABLES = ("fq_message", "fq_signal", "fq_channel_state", "fq_lease", "fq_queue_state")
_MANY_DEAD = 50_000

_SETTINGS = text(
    "select current_setting('autovacuum')::boolean as autovacuum, current_setting('track_counts')::boolean as counts"
)
_TABLES = text(
    "select c.relname as table, coalesce(t.n_dead_tup, 0) as dead, coalesce(t.n_live_tup, 0) as live, "
    "greatest(t.last_vacuum, t.last_autovacuum) as vacuumed_at, "
    "clock_timestamp() - greatest(t.last_vacuum, t.last_autovacuum) as ago, "
    "coalesce((select o.option_value::boolean from pg_options_to_table(c.reloptions) o "
    "  where o.option_name = 'autovacuum_enabled'), true) as enabled, "
    "coalesce((select o.option_value::float8 from pg_options_to_table(c.reloptions) o "
    "  where o.option_name = 'autovacuum_vacuum_scale_factor'), "
    "  current_setting('autovacuum_vacuum_scale_factor')::float8) as factor, "
    "coalesce((select o.option_value::bigint from pg_options_to_table(c.reloptions) o "
    "  where o.option_name = 'autovacuum_vacuum_threshold'), "
    "  current_setting('autovacuum_vacuum_threshold')::bigint) as threshold "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "left join pg_stat_all_tables t on t.relid = c.oid "
    "where n.nspname = :schema and c.relname = any(:tables) and c.relkind = 'r' order by c.relname"
)


def check_vacuum(examined: Examination) -> Iterator[Finding]:
    """Whether dead rows are taken away: every update and delete leaves one."""
    settings = examined.connection.execute(_SETTINGS).one()
    if not settings.autovacuum or not settings.counts:
        name = "autovacuum" if not settings.autovacuum else "track_counts"
        yield Finding(
            "autovacuum", Level.PROBLEM,
            f"{name} is off on this server: dead rows pile up and every dequeue reads more of them",
            f"alter system set {name} = on; select pg_reload_conf();",
        )  # fmt: skip
    rows = examined.connection.execute(_TABLES, {"schema": examined.schema, "tables": list(HOT_TABLES)})
    for row in rows:
        yield _table(examined.schema, row)


def _table(schema: str, row: Row[Any]) -> Finding:
    values = {
        "table": row.table, "dead_rows": row.dead, "live_rows": row.live, "vacuumed_at": row.vacuumed_at,
        "scale_factor": row.factor, "threshold": row.threshold,
    }  # fmt: skip
    name = f"{quoted(schema)}.{row.table}"
    when = f"vacuumed {duration_words(row.ago)} ago" if row.ago else "never vacuumed"
    message = f"{row.table}: {row.dead:,} dead rows, {when}"
    if not row.enabled:
        remedy = f"alter table {name} reset (autovacuum_enabled);"
        return Finding("autovacuum", Level.PROBLEM, f"{message}; autovacuum is off for it", remedy, values)
    # Five times what should have started a vacuum, or many in absolute terms: it does not keep up, or cannot.
    if row.dead > max(_MANY_DEAD, 5 * (row.threshold + row.factor * row.live)):
        remedy = f"see the findings about snapshots; if there are none: vacuum {name};"
        return Finding("autovacuum", Level.WARNING, f"{message}: vacuum does not keep up", remedy, values)
    return Finding("autovacuum", Level.OK, message, None, values)
