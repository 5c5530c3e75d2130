"""Sends statements unchanged, online and offline.

``op.execute(str)`` would take ``:word`` for a parameter. In a script it would also write each percent sign twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.errors import AutocommitError, refuse_migration
from sqlalchemy_fairqueue.sql.schema import same_transaction_guard

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alembic.runtime.migration import MigrationContext


def send(context: MigrationContext, doing: str, schema: str | None, statements: Iterable[str]) -> None:
    """Send statements of operation *doing* in the migration's transaction, or with ``--sql`` write them to a script.

    Raises:
        ValueError: The database is not PostgreSQL, no connection exists online, or the connection translates *schema*.
        AutocommitError: The connection commits each statement by itself.
        SchemaMismatch: The first statement, which checks the schema, has found that the operation is not possible.
        IsolationError: The transaction is read-only, or the operation needs READ COMMITTED.
    """
    if context.dialect.name != "postgresql":
        problem = f"{doing} needs PostgreSQL, and this migration runs on {context.dialect.name}; leave it out there"
        raise ValueError(problem)
    autocommit = (
        f"{doing} is all or nothing, and the connection is in AUTOCOMMIT; take it out of the autocommit_block(), "
        "or configure Alembic with "
    )
    guard, *steps = statements
    statements = (guard, same_transaction_guard(f"{autocommit}transactional_ddl=True"), *steps)
    if context.as_sql:
        for statement in statements:
            context.impl.static_output(f"{statement};")
        return
    connection = context.connection
    if connection is None:
        problem = f"{doing} has no connection to run on; configure Alembic with one, or run with --sql"
        raise ValueError(problem)
    taken_for = (connection.get_execution_options().get("schema_translate_map") or {}).get(schema, schema)
    if taken_for != schema:
        problem = (
            f"{doing} got schema={schema!r}, for which the connection's schema_translate_map puts {taken_for!r}: "
            f"fairqueue's statements are not translated; write schema={taken_for!r}, or set the search_path instead"
        )
        raise ValueError(problem)
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        problem = f"{autocommit}an engine without isolation_level='AUTOCOMMIT'"
        raise AutocommitError(problem)
    try:
        for statement in statements:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    except DBAPIError as error:
        refuse_migration(error, doing)
