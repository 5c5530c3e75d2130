"""Row level security on fairqueue's tables: functions leave rows behind that a policy hides from their owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.cli.doctor.privileges import ALL_TABLES
from sqlalchemy_fairqueue.cli.installation import current_role
from sqlalchemy_fairqueue.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext


_ALL = ("select", "insert", "update", "delete")


def check_row_security(context: CheckContext) -> Iterator[Finding]:
    """Whether policies may hide rows from a monitor, or from the owner of the functions; no finding where none does."""
    monitors = context.role is Role.MONITOR
    role = current_role(context.connection)
    if not monitors:
        role = context.execute("functions_owner", schema=context.schema).scalar_one_or_none() or role
    wanted = [(table, right) for table in ALL_TABLES for right in (_ALL[:1] if monitors else _ALL)]
    tables, privileges = [table for table, _ in wanted], [right for _, right in wanted]
    names = {"schema": context.schema, "role": role, "tables": tables, "privileges": privileges}
    rows = context.execute("row_security", **names).all()
    if not rows:
        return
    hidden = [row.table for row in rows]
    yield Finding(
        "privileges",
        Level.WARNING if monitors else Level.PROBLEM,
        f"row level security may hide rows of {', '.join(hidden)} from role {role!r}"
        + (
            ": what it counts may be a part"
            if monitors
            else ", with whose rights the functions run: messages that they do not see are left behind"
        ),
        "\n".join(_remedies(context.schema, role, row.table, row.restrictive) for row in rows),
        {"role": role, "kind": context.role.value, "tables": hidden},
    )


def _remedies(schema: str, role: str, table: str, restrictive: list[str] | None) -> str:
    if restrictive:
        names = ", ".join(map(repr, restrictive))
        return f"take {role!r} out of restrictive {names} on {table}; or: alter role {quoted(role)} bypassrls;"
    name = quoted(f"{role} sees all")
    return f"create policy {name} on {quoted(schema)}.{table} to {quoted(role)} using (true);"
