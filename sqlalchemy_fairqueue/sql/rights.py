"""Rights as a database has them: its grants, and the privileges of all roles on what is fairqueue's.

Reads the catalog, and the grants by ``fq_grants()`` where the role may call it. Nothing is locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.sql.files import names_of_ours, query
from sqlalchemy_fairqueue.sql.grants import RoleGrant, role_functions
from sqlalchemy_fairqueue.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

PUBLIC = "public"
"""Everybody, where a role is named. No role can have this name."""


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
    return bool(connection.scalar(text(query("may_read_grants")), {"schema": schema}))


def read_grants(connection: Connection, schema: str) -> list[HeldGrant]:
    """Return the grants of an installation, by role and kind."""
    statement = f"select role, role_exists, kind, queues, channels from {quoted(schema)}.fq_grants()"  # noqa: S608 - quoted
    rows = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    return [HeldGrant(RoleGrant(role, kind, queues, channels), exists) for role, exists, kind, queues, channels in rows]


def read_privileges(connection: Connection, schema: str) -> list[Privilege]:
    """Return the privileges of all roles on fairqueue's objects in a schema, except the owners'."""
    rows = connection.execute(text(query("privileges")), names_of_ours(schema))
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
