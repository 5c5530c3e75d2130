"""Finds where fairqueue is installed and whether this library can use it; errors say what to paste into a migration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.database.errors import refusal_of, sqlstate_of, to_upgrade, too_old
from sqlalchemy_fairqueue.database.installation import read_version
from sqlalchemy_fairqueue.doctor.findings import query
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import function_roles
from sqlalchemy_fairqueue.sql.schema import schema_argument

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.exc import DBAPIError

_UNREACHABLE = ("08", "28", "3D000", "53300", "57P01", "57P02", "57P03", "57P05")
"""SQLSTATEs, or their beginnings, of a server that refuses or ends the connection."""


class Unusable(Exception):
    """An installation is missing or too old, or the role may not use it.

    *kind* is ``schema_missing``, ``schema_outdated`` or ``privilege_missing``; *remedy* has lines to paste, or is None.
    """

    def __init__(self, message: str, kind: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.remedy = remedy


def is_unreachable(error: DBAPIError) -> bool:
    """Return whether the server was not reached, refused the connection, or has ended it."""
    state = sqlstate_of(error)
    return error.connection_invalidated or state.startswith(_UNREACHABLE) or (not state and error.statement is None)


def find_installation(connection: Connection, schema: str | None, kind: str = "operator") -> tuple[str, int]:
    """Return the schema that holds fairqueue and the installed version, even if this library cannot use that version.

    Without *schema*, the first schema of the search_path that holds fairqueue is returned. Raise Unusable if no schema
    is found, or if the role may not ask for the version. In the second case the remedy grants *kind* to the role.
    """
    row = connection.execute(query("installed"), {"schema": schema}).one_or_none()
    if row is None:
        raise _missing(connection, schema)
    if not row.usable or not row.executable:
        role = current_role(connection)
        message = f"role {role!r} may not use fairqueue in schema {row.schema!r}"
        raise Unusable(message, "privilege_missing", f"{grant(role, kind, row.schema)} in a migration")
    return row.schema, read_version(connection, row.schema)


def grant(role: str, kind: str, schema: str | None) -> str:
    return f"op.grant_fairqueue({role!r}, {kind!r}{schema_argument(schema)})"


_NO_PRIVILEGE = "42501"
_DENIED = re.compile(r"\bfq_\w+|\bschema\b")


def needed_kind(error: DBAPIError) -> str | None:
    """Return the kind of work whose grant allows what the server denied; None if none does, or nothing was denied."""
    if sqlstate_of(error) != _NO_PRIVILEGE or not (denied := _DENIED.search(refusal_of(error).message)):
        return None
    if denied[0] == "schema":
        return "monitor"
    kinds = function_roles(latest_version()).get(denied[0])
    return ("monitor" if "monitor" in kinds else kinds[-1]) if kinds else None


def outdated(name: str, version: int, schema: str | None) -> Unusable | None:
    """Return an error if *version*, which is installed in schema *name*, is too old for this library; otherwise None.

    The error's remedy is an Alembic operation that names *schema*. If *schema* is None, the operation names no schema.
    """
    problem = too_old(version, name)
    if problem is None:
        return None
    return Unusable(
        f"{problem}; run a migration with this in upgrade()", "schema_outdated", to_upgrade(version, schema)
    )


def current_role(connection: Connection) -> str:
    return str(connection.scalar(text("select current_user")))


def _missing(connection: Connection, schema: str | None) -> Unusable:
    where = f"in schema {schema!r}" if schema else "in any schema of the search_path"
    others = [str(name) for name in connection.scalars(query("other_schemas"))]
    name = connection.scalar(text("select current_database()"))
    message = f"fairqueue is not installed {where} of database {name!r}"
    if others:
        return Unusable(f"{message}, but in {', '.join(map(repr, others))}; name it with --schema", "schema_missing")
    remedy = f"op.create_fairqueue(version={latest_version()}{schema_argument(schema)})"
    return Unusable(f"{message}; run a migration with this in upgrade()", "schema_missing", remedy)
