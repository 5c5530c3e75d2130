"""Writes the statements that grant a role a kind of work and revoke it, and reads the grants and privileges there are.

A grant is a row of ``fq_grant`` and the privileges that it stands for: ``execute`` on the functions of its kind, and
``usage`` of the schema. Nobody is granted a table, and PUBLIC is granted no function. Only ``vN/roles.toml`` lists the
functions of each kind; a later version lists what differs from the version before. Reading grants locks nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection, text

from sqlalchemy_fairqueue.sql.files import checked_version, folder, names_of_ours, query, versions
from sqlalchemy_fairqueue.sql.schema import block, grants_guard, part, quoted, quoted_literal


def close_functions(functions: Iterable[str], schema: str | None) -> str:
    """Return SQL that revokes functions from PUBLIC and makes the tables' owner the owner of the functions.

    If the role that runs the SQL may not change the owner, the SQL warns.
    """
    names = ", ".join(map(quoted_literal, functions))
    return block(part("close_functions", functions=names), schema, {"v_made": "record"})


def note_privileges(functions: Iterable[str], schema: str | None) -> str:
    """Return a DO block that notes who may execute functions, in a setting that ends with the transaction."""
    return block(
        part("note_privileges", grants=part("held_privileges"), names=", ".join(map(quoted_literal, functions))), schema
    )


def give_back_privileges(schema: str | None) -> str:
    return block(
        part("give_back_privileges", grants=part("held_privileges")),
        schema,
        {"v_function": "record", "v_grant": "record"},
    )


KINDS: Final = ("producer", "consumer", "monitor", "operator", "loader")
BOUND_BY_QUEUE: Final = ("producer", "consumer", "operator", "loader")
BOUND_BY_CHANNEL: Final = ("producer",)


def function_roles(version: int) -> Mapping[str, tuple[str, ...]]:
    """Return the kinds of work that may execute each function of a version; none if only other functions call it."""
    return _read(checked_version(version))


def role_functions(version: int, kind: str) -> tuple[str, ...]:
    _check_kind(kind)
    return tuple(sorted(name for name, kinds in function_roles(version).items() if kind in kinds))


@cache
def _read(version: int) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for step in range(1, version + 1):
        file = folder(step) / "roles.toml"
        if file.is_file():
            read = tomllib.loads(file.read_text(encoding="utf-8"))
            found |= {name: tuple(kinds) for name, kinds in read["functions"].items()}
    return MappingProxyType(dict(sorted(found.items())))


_MAX_ROLE_BYTES = 63
_MAX_NAME_BYTES = 512


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """A kind of work that a role is granted.

    Attributes:
        role: The role's name, as PostgreSQL keeps it, without quotes.
        kind: ``producer``, ``consumer``, ``monitor``, ``operator`` or ``loader``.
        queues: The only queues that the grant applies to; the class sorts them. None: all queues, as for every monitor.
        channels: The only channels that the grant of a producer applies to; the class sorts them. None: all channels.

    Raises:
        ValueError: A value cannot be granted.
        TypeError: Queues or channels are a string, or no collection.

    Example:
        >>> RoleGrant("web", "producer", queues=("documents",)).arguments  # of op.grant_fairqueue()
        ("'web'", "'producer'", "queues=['documents']")
    """

    role: str
    kind: str
    queues: Collection[str] | None = None
    channels: Collection[str] | None = None

    def __post_init__(self) -> None:
        _check_role(self.role)
        _check_kind(self.kind)
        for name, bounded in (("queues", BOUND_BY_QUEUE), ("channels", BOUND_BY_CHANNEL)):
            given: Collection[str] | None = getattr(self, name)
            if given is None:
                continue
            if self.kind not in bounded:
                problem = (
                    f"a {self.kind} cannot be bound to {name}={given!r}: only {', '.join(bounded)} can; leave it out"
                )
                raise ValueError(problem)
            object.__setattr__(self, name, _checked_names(name, given))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of ``op.grant_fairqueue()`` as Python code, such as ``'app'`` and ``queues=['documents']``."""
        bounds = {"queues": self.queues, "channels": self.channels}
        given = (f"{name}={list(names)!r}" for name, names in bounds.items() if names is not None)
        return (repr(self.role), repr(self.kind), *given)


def _check_role(role: str) -> None:
    if not role or "\0" in role or len(role.encode()) > _MAX_ROLE_BYTES or role in {"public", "none"}:
        problem = f"role {role!r} is not a role that can be granted work; give the name of one role, of 1 to 63 bytes"
        raise ValueError(problem)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        problem = f"there is no kind of work {kind!r}; give one of {', '.join(KINDS)}"
        raise ValueError(problem)


def _checked_names(argument: str, names: Collection[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Collection):
        problem = f"{argument} is {names!r}, which is no list of names; give {argument}=[{names!r}], or None for all"
        raise TypeError(problem)
    bad = [name for name in names if not _is_name(name)]
    if bad or not names:
        what = f"holds {bad[0]!r:.80}" if bad else "is empty"
        problem = f"{argument} {what}; give names of 1 to {_MAX_NAME_BYTES} bytes without NUL, or None for all"
        raise ValueError(problem)
    return tuple(sorted(set(names)))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and "\0" not in name and 1 <= len(name.encode()) <= _MAX_NAME_BYTES


_VARIABLES = {"v_role": "regrole", "v_usable": "boolean", "v_grant": "record", "v_version": "integer"}

_VERSION = """\
  execute format('select %I.fq_version()', v_schema) into v_version;"""


def grant_statements(grant: RoleGrant, schema: str | None) -> Iterator[str]:
    yield grants_guard(schema)
    given = part(
        "grant",
        role=_text(grant.role),
        kind=_text(grant.kind),
        queues=_names(grant.queues),
        channels=_names(grant.channels),
    )
    yield _block([_VERSION, given, part("give_functions", granted=_granted(versions(), [grant.kind]))], schema)


def revoke_statements(role: str, kind: str | None, schema: str | None) -> Iterator[str]:
    _check_role(role)
    if kind is not None:
        _check_kind(kind)
    yield grants_guard(schema)
    of = "null::text" if kind is None else _text(kind)
    taken = part("take_functions", granted=_granted(versions(), KINDS), before="v_version", kind=of)
    # v_role is null if the role does not exist.
    taken = f"  if v_role is not null then\n{taken}\n  end if;"
    yield _block([_VERSION, part("revoke", role=_text(role), kind=of), taken], schema)


def renew_grants(before: int, after: int, schema: str | None) -> str:
    """Return a DO block that gives roles the functions that their grants stand for in the version *after*.

    The block also revokes the functions that the grants stood for only in the version *before*.
    """
    granted = _granted(sorted({before, after}), KINDS)
    steps = [f"  v_version := {after};", part("give_functions", granted=granted)]
    if before != after:
        steps.append(part("take_functions", granted=granted, before=str(before), kind="null::text"))
    return _block(steps, schema)


def take_usage(schema: str | None) -> str:
    return _block([part("take_usage")], schema)


def _granted(of: Iterable[int], kinds: Iterable[str]) -> str:
    """Write SQL for three parallel arrays: for each granted function the version, the kind of work, and the name."""
    wanted = list(kinds)
    rows = [(version, kind, name) for version in of for kind in wanted for name in role_functions(version, kind)]
    columns = [
        ", ".join(str(version) for version, _, _ in rows),
        ", ".join(quoted_literal(kind) for _, kind, _ in rows),
        ", ".join(quoted_literal(name) for _, _, name in rows),
    ]
    kinds_of_columns = ("integer[]", "text[]", "text[]")
    return ",\n      ".join(f"array[{values}]::{kind}" for values, kind in zip(columns, kinds_of_columns, strict=True))


def _text(value: str) -> str:
    return f"{quoted_literal(value)}::text"


def _names(names: Collection[str] | None) -> str:
    return "null::text[]" if names is None else f"array[{', '.join(quoted_literal(name) for name in names)}]::text[]"


def _block(steps: Iterable[str], schema: str | None) -> str:
    return block("\n".join(steps), schema, _VARIABLES)


PUBLIC = "public"
"""The name that stands for everybody. No role can have this name."""


@dataclass(frozen=True, slots=True)
class HeldGrant:
    """A grant that an installation has. If its role was dropped, ``grant.role`` is the role's oid as text."""

    grant: RoleGrant
    role_exists: bool


@dataclass(frozen=True, slots=True)
class Privilege:
    """The privileges that a role has on an object of an installation without owning the object.

    Attributes:
        kind: ``function``, ``table``, ``sequence`` or ``schema``.
        privileges: ``execute``, ``select`` and so on, including privileges on single columns.
    """

    kind: str
    name: str
    role: str
    privileges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoleRights:
    """The rights of a role, or of :data:`PUBLIC`, on an installation, compared with the role's grants.

    Attributes:
        lacking: Functions that the role's grants stand for, but that the role may not execute.
        beyond: Functions that the role may execute, although none of its grants stands for them.
        others: Rights on tables and sequences, such as ``select on fq_message``, and the right to create in the schema.
    """

    role: str
    grants: tuple[RoleGrant, ...]
    role_exists: bool
    lacking: tuple[str, ...]
    beyond: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def as_granted(self) -> bool:
        return self.role_exists and not self.lacking and not self.beyond and not self.others


def may_read_grants(connection: Connection, schema: str) -> bool:
    return bool(connection.scalar(text(query("may_read_grants")), {"schema": schema}))


def read_grants(connection: Connection, schema: str) -> list[HeldGrant]:
    statement = f"select role, role_exists, kind, queues, channels from {quoted(schema)}.fq_grants()"  # noqa: S608 - quoted
    rows = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    return [HeldGrant(RoleGrant(role, kind, queues, channels), exists) for role, exists, kind, queues, channels in rows]


def read_privileges(connection: Connection, schema: str) -> list[Privilege]:
    rows = connection.execute(text(query("privileges")), names_of_ours(schema))
    return [Privilege(row.kind, row.name, row.role, tuple(row.privileges)) for row in rows]


def compared_rights(version: int, grants: Iterable[HeldGrant], privileges: Iterable[Privilege]) -> list[RoleRights]:
    """Compare each role's grants with its privileges, except ``usage`` of the schema, which alone allows nothing."""
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
    compared: list[RoleRights] = []
    for role in sorted({*granted, *executable, *others}):
        held_grants, has = granted.get(role, []), executable.get(role, set())
        wanted = {name for one in held_grants for name in role_functions(version, one.grant.kind)}
        exists = all(one.role_exists for one in held_grants)
        lacking, beyond = sorted(wanted - has) if exists else (), sorted(has - wanted)
        named = tuple(one.grant for one in held_grants)
        compared.append(RoleRights(role, named, exists, tuple(lacking), tuple(beyond), tuple(others.get(role, ()))))
    return compared
