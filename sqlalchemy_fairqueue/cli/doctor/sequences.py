"""Sequences that are behind the ids of their tables, as after rows were copied without them: they give ids twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.formats import plural
from sqlalchemy_fairqueue.cli.installation import current_role
from sqlalchemy_fairqueue.sql.schema import quoted, quoted_literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

# Checked only where the role may read them: a role that works with the queue need not.
_READABLE_QUERIES = {
    "fq_history": "history_ids_in_use",
    "fq_pruned_history": "pruned_ids_in_use",
    "fq_schedule": "schedule_ids_in_use",
}


def check_sequences(context: CheckContext) -> Iterator[Finding]:
    """Whether the next ids are new ones, and no dead letter has the id of a message."""
    # The sequences are read after the ids: ids that are drawn in between are no problem.
    in_use = _ids_in_use(context)
    rows = context.execute("sequences", schema=context.schema, tables=list(in_use)).all()
    findings = [finding for row in rows if (finding := _finding(context, row, in_use[row.table]))]
    repeated = context.execute("repeated_ids").scalar_one()
    if repeated:
        findings.append(_repeated(context.schema, repeated))
    yield from findings
    if not findings:
        yield Finding("sequences", Level.OK, "the next ids of messages, signals and channels are new ones")


def _ids_in_use(context: CheckContext) -> dict[str, int]:
    """The greatest id of each table; of the history and the schedules, if the role may read them."""
    found = dict(context.execute("ids_in_use").one()._asdict())
    tables = list(_READABLE_QUERIES)
    for table in context.execute("readable_tables", schema=context.schema, tables=tables).scalars().all():
        found[table] = context.execute(_READABLE_QUERIES[table]).scalar()
    return {table: greatest or 0 for table, greatest in found.items()}


def _finding(context: CheckContext, row: Row[Any], greatest: int) -> Finding | None:
    sequence = f"{quoted(context.schema)}.{quoted(row.sequence)}"
    is_optional, last = row.table in _READABLE_QUERIES, row.last or 0
    if not row.readable:
        if is_optional:
            return None
        role = current_role(context.connection)
        return Finding(
            "sequences", Level.WARNING, f"role {role!r} may not read the last value of sequence {row.sequence}",
            f"grant select on sequence {sequence} to {quoted(role)};",
        )  # fmt: skip
    if last >= greatest:
        return None
    literal = quoted_literal(sequence)
    least = f"(select max(id) from {quoted(context.schema)}.{row.table})" if is_optional else str(greatest)  # noqa: S608 (quoted)
    return Finding(
        "sequences", Level.PROBLEM,
        f"sequence {row.sequence} is at {last:,}, and {row.table} was at {greatest:,}: its next ids are old ones",
        f"select setval({literal}, greatest(nextval({literal}), {least}));",
        {"sequence": row.sequence, "last": last, "greatest": greatest},
    )  # fmt: skip


def _repeated(schema: str, count: int) -> Finding:
    name = quoted(schema)
    table = quoted_literal(f"{name}.fq_message")
    return Finding(
        "sequences", Level.PROBLEM,
        f"{plural(count, 'dead letter')} with the id of an existing message, which cannot become a dead letter",
        f"update {name}.fq_dead_letter d set message_id = nextval(pg_get_serial_sequence({table}, 'id')) "  # noqa: S608 (quoted)
        f"where exists (select from {name}.fq_message m where m.id = d.message_id);",
        {"dead_letters": count},
    )  # fmt: skip
