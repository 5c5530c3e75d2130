"""Checks whether this library can use what a database has installed, and installs without Alembic.

Before the library sends anything else, it asks which version is installed. If the version is usable, the library does
not ask again for this connection pool and schema. This is safe, since the database is upgraded before the code, and
downgraded after the code: the installed version is never older than the code needs.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy_fairqueue.database.calls import Shape, call, is_in_autocommit, usable_schemas
from sqlalchemy_fairqueue.database.drivers import driver_of
from sqlalchemy_fairqueue.database.engines import read_committed
from sqlalchemy_fairqueue.database.errors import sqlstate_of, to_install, to_upgrade, too_old
from sqlalchemy_fairqueue.errors import (
    AutocommitError,
    FairQueueError,
    InvalidArgument,
    SchemaMismatch,
    refuse_migration,
)
from sqlalchemy_fairqueue.sql import install_statements
from sqlalchemy_fairqueue.sql.catalog import installed_version, recognised_version
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.schema import SCHEMA_MISMATCH, VERSION_COLUMN, named_schema, quoted

_ATTEMPTS = 5
# SQLSTATEs with which an install fails if another install commits meanwhile. They come from the guard, from names that
# are taken, and from rows of the catalog.
_TAKEN = {SCHEMA_MISMATCH, "23505", "42P06", "42P07", "42710", "42723", "40P01", "40001", "XX000"}


_VERSION = Shape((f"{VERSION_COLUMN} as version",))
_READ_ONLY = text("select pg_catalog.current_setting('transaction_read_only')")


def read_version(connection: Connection, schema: str | None) -> int:
    """Return the version in a schema; raise SchemaMismatch if there is none."""
    return call(schema, "fq_version", "find the version of fairqueue's schema", _VERSION).value(connection)


def check_writable(connection: Connection) -> None:
    if connection.execute(_READ_ONLY).scalar_one() == "on":
        raise FairQueueError(
            "the server takes no writes: it is a standby, or transactions are read-only by default; connect to the "
            "primary (target_session_attrs=read-write in the URL)"
        )


def check_installed(connection: Connection, schema: str | None) -> None:
    """Refuse a schema without fairqueue or with a version that is too old. A newer version is usable.

    Raises:
        InvalidArgument: The connection is not to PostgreSQL through a supported driver.
        SchemaMismatch: Its text says what is installed, what is needed, and which migration to write.
    """
    usable = usable_schemas.setdefault(connection.engine.pool, set())
    if schema in usable:
        return
    driver_of(connection)
    try:
        found = read_version(connection, schema)
    except SchemaMismatch as error:
        missing = f"fairqueue is not installed in {named_schema(schema)}; {to_install(schema)}"
        raise SchemaMismatch(missing) from error.__cause__
    _check_version(found, schema)
    usable.add(schema)


def _check_version(version: int, schema: str | None) -> None:
    if problem := too_old(version, schema):
        raise SchemaMismatch(f"{problem}; put {to_upgrade(version, schema)} into an Alembic migration and run it")


def install_fairqueue(where: Engine | Connection, schema: str | None = None) -> bool:
    """Install the newest version of fairqueue if no version is there; for tests and scripts without migrations.

    With Alembic, use ``op.create_fairqueue`` instead. In asynchronous programs:
    ``await connection.run_sync(install_fairqueue)``.

    Args:
        where: An engine: the call commits a transaction of its own, and waits if another process installs meanwhile. A
            connection: the call uses the open transaction, and fails if another process installs meanwhile.
        schema: The schema to install in; it is created if it is missing. None: the connection's default schema.

    Returns:
        True if fairqueue was installed now; False if a version that this library can use was there.

    Raises:
        SchemaMismatch: A version is there that is too old for this library, or other objects have fairqueue's names.
        AutocommitError: The connection commits each statement by itself.
        IsolationError: The transaction is read-only.
        ValueError: PostgreSQL cannot store the schema's name, or the database is not PostgreSQL.

    Example:
        >>> install_fairqueue(engine)  # it is installed already
        False
    """
    given: object = where
    if not isinstance(given, (Engine, Connection)):
        is_async = isinstance(given, (AsyncEngine, AsyncConnection, AsyncSession))
        raise InvalidArgument(
            f"install_fairqueue got {given!r:.80}; give an Engine or a Connection"
            + (", in an asynchronous program: await connection.run_sync(install_fairqueue)" if is_async else "")
        )
    if where.dialect.name != "postgresql":
        problem = f"fairqueue needs PostgreSQL, and this database is {where.dialect.name}"
        raise ValueError(problem)
    if isinstance(where, Connection):
        if is_in_autocommit(where):
            raise AutocommitError(
                "install_fairqueue is all or nothing, and the connection is in AUTOCOMMIT; give the engine, or a "
                "connection without isolation_level='AUTOCOMMIT'"
            )
        return _installed_now(where, schema)
    engine = read_committed(where)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with engine.begin() as connection:
                return _installed_now(connection, schema)
        except (DBAPIError, SchemaMismatch) as error:
            cause = error if isinstance(error, DBAPIError) else error.__cause__
            if attempt == _ATTEMPTS or not isinstance(cause, DBAPIError) or sqlstate_of(cause) not in _TAKEN:
                raise
            # Try again after a guard's refusal only if another process has installed meanwhile.
            if isinstance(error, SchemaMismatch) and not _is_there(engine, schema):
                raise
    raise AssertionError


def _installed_now(connection: Connection, schema: str | None) -> bool:
    version = recognised_version(connection, schema)
    if version is not None:
        _check_version(version, schema)
        return False
    made = [] if schema is None else [f"create schema if not exists {quoted(schema)}"]
    try:
        for statement in (*made, *install_statements(latest_version(), schema)):
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    except DBAPIError as error:
        refuse_migration(error, "install_fairqueue")
    return True


def _is_there(engine: Engine, schema: str | None) -> bool:
    with engine.connect() as connection:
        return installed_version(connection, schema) is not None
