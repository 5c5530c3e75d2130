"""Row level security on our tables: functions that see a part of the rows leave the others behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level, Role
from sqlalchemy_fairqueue.cli.doctor.privileges import MORE, RIGHTS
from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

# All rows are there for a role with a permissive policy that says "true" for what it does, and no restrictive one that
# says anything else. Whatever else a policy says, it may be a part.
_PARTS = text(
    "with wanted as (select c.oid, c.relname, case r.privilege when 'select' then 'r' when 'insert' then 'a' "
    "when 'update' then 'w' else 'd' end as command from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "join unnest(cast(:tables as text[]), cast(:privileges as text[])) r(name, privilege) on r.name = c.relname "
    "where n.nspname = :schema and c.relkind in ('r', 'p') and c.relrowsecurity and row_security_active(c.oid) "
    "and has_table_privilege(c.oid, r.privilege)), "
    "policy as (select p.polrelid, p.polname, p.polpermissive, p.polcmd::text as command, "
    "coalesce(pg_get_expr(p.polqual, p.polrelid) = 'true', false) as reads, "
    "coalesce(pg_get_expr(coalesce(p.polwithcheck, p.polqual), p.polrelid) = 'true', false) as writes "
    "from pg_policy p where p.polrelid in (select w.oid from wanted w) "
    "and exists (select from unnest(p.polroles) r(oid) where case when r.oid = 0 then true "
    "else pg_has_role(r.oid, 'usage') end)), "
    "judged as (select w.relname, w.command, p.polname, p.polpermissive, "
    "case w.command when 'a' then p.writes when 'w' then p.reads and p.writes else p.reads end as everything "
    "from wanted w left join policy p on p.polrelid = w.oid and p.command in ('*', w.command)) "
    "select j.relname as table, array_agg(distinct j.polname::text) filter (where not j.polpermissive "
    "and not j.everything) as restrictive from judged j where (j.relname, j.command) in (select k.relname, k.command "
    "from judged k group by k.relname, k.command having coalesce(bool_or(k.everything and k.polpermissive), false) "
    "is false or bool_or(not k.polpermissive and not k.everything)) group by j.relname order by j.relname"
)


def check_row_security(examined: Examination) -> Iterator[Finding]:
    """Whether policies may hide rows of our tables from the role; it says nothing where none does."""
    its = [RIGHTS[examined.role], *(MORE.values() if examined.role is Role.PRODUCER else ())]
    wanted = sorted({(table, right) for rights in its for table in rights for right in rights[table]})
    tables, privileges = [table for table, _ in wanted], [right for _, right in wanted]
    named = {"schema": examined.schema, "tables": tables, "privileges": privileges}
    parts = examined.connection.execute(_PARTS, named).all()
    if not parts:
        return
    role = str(examined.connection.scalar(text("select current_user")))
    hidden = [row.table for row in parts]
    looks = examined.role is Role.MONITOR
    yield Finding(
        "privileges",
        Level.WARNING if looks else Level.PROBLEM,
        f"row level security may hide rows of {', '.join(hidden)} from role {role!r}: "
        + ("what it counts may be a part" if looks else "messages that it does not see are left behind"),
        "\n".join(_remedies(examined.schema, role, row.table, row.restrictive) for row in parts),
        {"role": role, "kind": examined.role.value, "tables": hidden},
    )


def _remedies(schema: str, role: str, table: str, restrictive: list[str] | None) -> str:
    if restrictive:
        names = ", ".join(map(repr, restrictive))
        return f"take {role!r} out of restrictive {names} on {table}; or: alter role {quoted(role)} bypassrls;"
    name = quoted(f"{role} sees all")
    return f"create policy {name} on {quoted(schema)}.{table} to {quoted(role)} using (true);"
