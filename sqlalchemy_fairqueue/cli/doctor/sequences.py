"""Sequences that stand behind their tables, as they do after rows were copied without them: ids come twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.printing import counted
from sqlalchemy_fairqueue.sql import quoted
from sqlalchemy_fairqueue.statements.building import qualifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

# Dead letters keep the ids of their messages, and channels that of the last signal they were told by.
_IN_USE = (
    "select greatest((select max(id) from {schema}fq_message), (select max(message_id) from {schema}fq_dead_letter)) "
    "as fq_message, (select max(id) from {schema}fq_channel) as fq_channel, "
    "greatest((select max(id) from {schema}fq_signal), (select max(heard_id) from {schema}fq_channel_state)) "
    "as fq_signal"
)
# The history may be long and has no index by which its greatest id is found: the last transactions have drawn the last
# ids, but for a few that overtook each other.
_HISTORY = {
    "fq_history": (
        "select max(h.id) from (select h.id from {schema}fq_history h order by h.recorded_xid desc, h.id desc "
        "limit 1000) h"
    ),
    "fq_pruned_history": "select max(p.id) from {schema}fq_pruned_history p",
}
# What a role that only works with the queue may not read is the owner's affair.
_SHOWN = text(
    "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = :schema and c.relname = any(:tables) and has_table_privilege(c.oid, 'select')"
)
# Read after the ids: they may be drawn meanwhile, which is no problem. A serial's sequence depends in another way than
# an identity's; other columns are the user's.
_SEQUENCES = text(
    "select c.relname as table, s.relname as sequence, q.last_value as last, "
    # Tested in this order, whatever the planner prefers.
    "case when s.relkind = 'S' then has_sequence_privilege(s.oid, 'usage') or has_sequence_privilege(s.oid, 'select') "
    "end as readable "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid "
    "and d.deptype in ('a', 'i') and d.classid = 'pg_class'::regclass "
    "join pg_attribute a on a.attrelid = c.oid and a.attnum = d.refobjsubid and a.attname = 'id' "
    "join pg_class s on s.oid = d.objid and s.relkind = 'S' "
    "join pg_sequences q on q.schemaname = n.nspname and q.sequencename = s.relname "
    "where n.nspname = :schema and c.relname = any(:tables) order by c.relname"
)
_TWICE = (
    "select count(*) from {schema}fq_dead_letter d where d.message_id >= (select min(id) from {schema}fq_message) "
    "and exists (select from {schema}fq_message m where m.id = d.message_id)"
)


def check_sequences(examined: Examination) -> Iterator[Finding]:
    """Whether the next ids are new ones, and no dead letter has a message's."""
    connection, schema = examined.connection, qualifier(examined.schema)
    in_use = _in_use(examined)
    fine = True
    for row in connection.execute(_SEQUENCES, {"schema": examined.schema, "tables": list(in_use)}):
        sequence = f"{quoted(examined.schema)}.{quoted(row.sequence)}"
        greatest, last = in_use[row.table], row.last or 0
        if not row.readable:
            if row.table in _HISTORY:
                continue
            fine = False
            role = str(connection.scalar(text("select current_user")))
            yield Finding(
                "sequences", Level.WARNING, f"role {role!r} may not look where sequence {row.sequence} stands",
                f"grant select on sequence {sequence} to {quoted(role)};",
            )  # fmt: skip
        elif last < greatest:
            fine = False
            literal = "'" + sequence.replace("'", "''") + "'"
            least = str(greatest)
            if row.table in _HISTORY:
                least = f"(select max(id) from {quoted(examined.schema)}.{row.table})"  # noqa: S608 (quoted)
            yield Finding(
                "sequences", Level.PROBLEM,
                f"sequence {row.sequence} stands at {last:,}, and {row.table} was at {greatest:,}: its next ids are "
                "old ones",
                f"select setval({literal}, greatest(nextval({literal}), {least}));",
                {"sequence": row.sequence, "last": last, "greatest": greatest},
            )  # fmt: skip
    twice = connection.scalar(text(_TWICE.replace("{schema}", schema))) or 0
    if twice:
        yield _twice(examined.schema, twice)
    elif fine:
        yield Finding("sequences", Level.OK, "the next ids of messages, signals and channels are new ones")


def _in_use(examined: Examination) -> dict[str, int]:
    """The greatest id of each table, as far as the role may read the history's."""
    connection, schema = examined.connection, qualifier(examined.schema)
    row = connection.execute(text(_IN_USE.replace("{schema}", schema))).one()
    found = dict(row._asdict())
    for table in connection.scalars(_SHOWN, {"schema": examined.schema, "tables": list(_HISTORY)}).all():
        found[table] = connection.scalar(text(_HISTORY[table].replace("{schema}", schema)))
    return {table: greatest or 0 for table, greatest in found.items()}


def _twice(schema: str, count: int) -> Finding:
    place = quoted(schema)
    table = f"{place}.fq_message".replace("'", "''")
    return Finding(
        "sequences", Level.PROBLEM,
        f"{counted(count, 'dead letter')} with the id of a message that is there, which cannot become a dead letter",
        f"update {place}.fq_dead_letter d set message_id = nextval(pg_get_serial_sequence('{table}', 'id')) "  # noqa: S608 (quoted)
        f"where exists (select from {place}.fq_message m where m.id = d.message_id);",
        {"dead_letters": count},
    )  # fmt: skip
