"""The installation that a command works on: found, and new enough, else the migration to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.failures import Failure
from sqlalchemy_fairqueue.cli.statuses import Status
from sqlalchemy_fairqueue.installation import to_upgrade, too_old
from sqlalchemy_fairqueue.sql import latest_version, quoted, schema_argument
from sqlalchemy_fairqueue.statements import version as version_query

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ELSEWHERE = text(
    "select n.nspname from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
    "where p.proname = 'fq_version' and p.pronargs = 0 and n.nspname !~ '^pg_' "
    "and exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'fq_message') order by 1"
)
_HERE = text(
    "select n.nspname as schema, has_schema_privilege(n.oid, 'usage') as usable, "
    "has_function_privilege(p.oid, 'execute') as executable "
    "from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
    "where p.proname = 'fq_version' and p.pronargs = 0 and "
    "case when cast(:schema as text) is null then pg_function_is_visible(p.oid) else n.nspname = :schema end"
)


def found_version(connection: Connection, schema: str | None) -> tuple[str, int] | None:
    """The schema that holds fairqueue and its version, None if it is not there.

    Raises:
        Failure: The role may not look.
    """
    row = connection.execute(_HERE, {"schema": schema}).one_or_none()
    if row is None:
        return None
    if not row.usable or not row.executable:
        right = f"execute on function {quoted(row.schema)}.fq_version()"
        if not row.usable:
            right = f"usage on schema {quoted(row.schema)}"
        role = str(connection.scalar(text("select current_user")))
        raise Failure(
            f"role {role!r} may not use fairqueue in schema {row.schema!r}",
            Status.REFUSED,
            "privilege_missing",
            f"grant {right} to {quoted(role)};",
        )
    return row.schema, connection.execute(version_query(row.schema)).scalar_one()


def find_installation(connection: Connection, schema: str | None) -> tuple[str, int]:
    """The schema that holds fairqueue and its version, whether or not the commands can use it.

    Raises:
        Failure: It is missing, or the role may not look.
    """
    found = found_version(connection, schema)
    if found is None:
        raise missing(connection, schema)
    return found


def check_installed(connection: Connection, schema: str | None) -> str:
    """The name of the schema that holds fairqueue in a version that the commands can use.

    Raises:
        Failure: It is missing or outdated.
    """
    name, version = find_installation(connection, schema)
    if failure := unfit(name, version, schema):
        raise failure
    return name


def missing(connection: Connection, schema: str | None) -> Failure:
    """The failure to find fairqueue, with the migration that installs it."""
    where = f"in schema {schema!r}" if schema else "in any schema of the search_path"
    others = [str(name) for name in connection.scalars(_ELSEWHERE)]
    database = connection.scalar(text("select current_database()"))
    message = f"fairqueue is not installed {where} of database {database!r}"
    if others:
        return Failure(
            f"{message}, but in {', '.join(map(repr, others))}; name it with --schema", Status.SCHEMA, "schema_missing"
        )
    return Failure(
        f"{message}; run a migration with this in upgrade()",
        Status.SCHEMA,
        "schema_missing",
        f"op.create_fairqueue(version={latest_version()}{schema_argument(schema)})",
    )


def unfit(name: str, version: int, schema: str | None) -> Failure | None:
    """The failure to use a version, None if the commands can use it."""
    problem = too_old(version, name)
    if problem is None:
        return None
    return Failure(
        f"{problem}; run a migration with this in upgrade()",
        Status.SCHEMA,
        "schema_outdated",
        to_upgrade(version, schema),
    )
