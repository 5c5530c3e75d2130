"""Rights as a database has them: its grants, and the privileges of all roles on what is fairqueue's.

Reads the catalog, and the grants by ``fq_grants()`` where the role may call it. Nothing is locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.sql.files import functions, tables, versions
from sqlalchemy_fairqueue.sql.grants import RoleGrant, role_functions
from sqlalchemy_fairqueue.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

PUBLIC = "public"
"""Everybody, where a role is named. No role can have this name."""

_MAY_READ = """
select has_function_privilege(p.oid, 'execute') and has_schema_privilege(n.oid, 'usage')
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname = :schema
  and p.proname = 'fq_grants'
  and p.pronargs = 0
"""

_PRIVILEGES = """
select held.kind,
  held.name,
  case held.grantee when 0 then 'public' else coalesce(r.rolname, held.grantee::text) end as role,
  array_agg(distinct lower(held.privilege) order by lower(held.privilege)) as privileges
from (
  select 'function' as kind, p.proname::text as name, p.proowner as owner, a.grantee, a.privilege_type as privilege
  from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
  where n.nspname = :schema
    and p.proname = any (:functions)
  union all
  select case c.relkind when 'S' then 'sequence' else 'table' end, c.relname, c.relowner, a.grantee, a.privilege_type
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  cross join lateral (
    select t.* from pg_catalog.aclexplode(c.relacl) t
    union all
    select t.*
    from pg_catalog.pg_attribute x
    cross join lateral pg_catalog.aclexplode(x.attacl) t
    where x.attrelid = c.oid
      and not x.attisdropped
  ) a
  where n.nspname = :schema
    and c.relkind in ('r', 'p', 'S')
    and (
      c.relname = any (:tables)
      or exists (
        select
        from pg_catalog.pg_inherits i
        join pg_catalog.pg_class h on h.oid = i.inhparent
        where i.inhrelid = c.oid
          and h.relnamespace = n.oid
          and h.relname = any (:tables)
      )
      or exists (
        select
        from pg_catalog.pg_depend d
        join pg_catalog.pg_class h on h.oid = d.refobjid
        where d.objid = c.oid
          and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
          and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
          and c.relkind = 'S'
          and h.relnamespace = n.oid
          and h.relname = any (:tables)
      )
    )
  union all
  select 'schema', n.nspname, n.nspowner, a.grantee, a.privilege_type
  from pg_catalog.pg_namespace n
  cross join lateral pg_catalog.aclexplode(n.nspacl) a
  where n.nspname = :schema
) held
left join pg_catalog.pg_roles r on r.oid = held.grantee
where held.grantee <> held.owner
group by held.kind, held.name, role
order by role, held.kind, held.name
"""


@dataclass(frozen=True, slots=True)
class HeldGrant:
    """A grant of an installation.

    Attributes:
        grant: The role, its kind of work and the bounds.
        role_exists: Whether the role is still there. A dropped role is named by its number.
    """

    grant: RoleGrant
    role_exists: bool


@dataclass(frozen=True, slots=True)
class Privilege:
    """Privileges of a role on an object of an installation, which it does not own.

    Attributes:
        kind: ``function``, ``table``, ``sequence`` or ``schema``.
        name: The object's name.
        role: The role; ``public`` is everybody.
        privileges: ``execute``, ``select`` and so on, those on single columns too.
    """

    kind: str
    name: str
    role: str
    privileges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoleRights:
    """The rights of a role on an installation, beside its grants.

    Attributes:
        role: The role; ``public`` is everybody.
        grants: What it was granted.
        role_exists: Whether it is still there.
        lacking: Functions that its grants stand for and that it may not execute.
        beyond: Functions that it may execute, and none of its grants stands for.
        others: Rights on tables and sequences, and to create in the schema, as ``select on fq_message``.
    """

    role: str
    grants: tuple[RoleGrant, ...]
    role_exists: bool
    lacking: tuple[str, ...]
    beyond: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def as_granted(self) -> bool:
        """Whether the rights are those that the grants stand for."""
        return self.role_exists and not self.lacking and not self.beyond and not self.others


def may_read_grants(connection: Connection, schema: str) -> bool:
    """Return whether the role may read the grants of an installation."""
    return bool(connection.scalar(text(_MAY_READ), {"schema": schema}))


def read_grants(connection: Connection, schema: str) -> list[HeldGrant]:
    """Return the grants of an installation, by role and kind."""
    statement = f"select role, role_exists, kind, queues, channels from {quoted(schema)}.fq_grants()"  # noqa: S608 - quoted
    rows = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    return [HeldGrant(RoleGrant(role, kind, queues, channels), exists) for role, exists, kind, queues, channels in rows]


def read_privileges(connection: Connection, schema: str) -> list[Privilege]:
    """Return the privileges of all roles on fairqueue's objects in a schema, except the owners'."""
    names = {
        "schema": schema,
        "functions": sorted({name for version in versions() for name in functions(version)}),
        "tables": sorted({name for version in versions() for name in tables(version)}),
    }
    rows = connection.execute(text(_PRIVILEGES), names)
    return [Privilege(row.kind, row.name, row.role, tuple(row.privileges)) for row in rows]


def compared_rights(version: int, grants: Iterable[HeldGrant], privileges: Iterable[Privilege]) -> list[RoleRights]:
    """Compare what each role was granted with what it has.

    ``usage`` of the schema is not compared: by itself it gives nothing.
    """
    granted: dict[str, list[HeldGrant]] = {}
    for one in grants:
        granted.setdefault(one.grant.role, []).append(one)
    executable: dict[str, set[str]] = {}
    others: dict[str, list[str]] = {}
    for held in privileges:
        if held.kind == "function":
            executable.setdefault(held.role, set()).add(held.name)
        elif rights := [right for right in held.privileges if (held.kind, right) != ("schema", "usage")]:
            where = "the schema" if held.kind == "schema" else held.name
            others.setdefault(held.role, []).append(f"{', '.join(rights)} on {where}")
    return [
        _rights(version, role, granted.get(role, []), executable.get(role, set()), tuple(others.get(role, ())))
        for role in sorted({*granted, *executable, *others})
    ]


def _rights(
    version: int, role: str, grants: list[HeldGrant], executable: set[str], others: tuple[str, ...]
) -> RoleRights:
    wanted = {name for one in grants for name in role_functions(version, one.grant.kind)}
    exists = all(one.role_exists for one in grants)
    return RoleRights(
        role,
        tuple(one.grant for one in grants),
        exists,
        tuple(sorted(wanted - executable)) if exists else (),
        tuple(sorted(executable - wanted)),
        others,
    )
