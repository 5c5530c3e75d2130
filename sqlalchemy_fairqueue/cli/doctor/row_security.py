"""Row level security on fairqueue's tables: functions leave rows behind that a policy hides from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.cli.doctor.privileges import OPTIONAL_PRIVILEGES, ROLE_PRIVILEGES
from sqlalchemy_fairqueue.cli.installation import current_role
from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext


def check_row_security(context: CheckContext) -> Iterator[Finding]:
    """Whether policies may hide rows from the role; no finding where none does."""
    its = [ROLE_PRIVILEGES[context.role], *(OPTIONAL_PRIVILEGES.values() if context.role is Role.PRODUCER else ())]
    wanted = sorted({(table, right) for rights in its for table in rights for right in rights[table]})
    tables, privileges = [table for table, _ in wanted], [right for _, right in wanted]
    rows = context.execute("row_security", schema=context.schema, tables=tables, privileges=privileges).all()
    if not rows:
        return
    role = current_role(context.connection)
    hidden = [row.table for row in rows]
    monitors = context.role is Role.MONITOR
    yield Finding(
        "privileges",
        Level.WARNING if monitors else Level.PROBLEM,
        f"row level security may hide rows of {', '.join(hidden)} from role {role!r}: "
        + ("what it counts may be a part" if monitors else "messages that it does not see are left behind"),
        "\n".join(_remedies(context.schema, role, row.table, row.restrictive) for row in rows),
        {"role": role, "kind": context.role.value, "tables": hidden},
    )


def _remedies(schema: str, role: str, table: str, restrictive: list[str] | None) -> str:
    if restrictive:
        names = ", ".join(map(repr, restrictive))
        return f"take {role!r} out of restrictive {names} on {table}; or: alter role {quoted(role)} bypassrls;"
    name = quoted(f"{role} sees all")
    return f"create policy {name} on {quoted(schema)}.{table} to {quoted(role)} using (true);"
