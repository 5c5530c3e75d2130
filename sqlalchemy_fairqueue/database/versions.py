"""Version of the schema that a database has installed, and whether this library can use it.

The library asks once for each engine and schema, before it sends anything else there, and remembers a version that it
can use. That is safe because a database is migrated before the code that needs it is deployed, and the code is rolled
back before the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy import text

from sqlalchemy_fairqueue.database.calls import Shape, call
from sqlalchemy_fairqueue.database.errors import to_install, to_upgrade, too_old
from sqlalchemy_fairqueue.errors import FairQueueError, SchemaMismatch
from sqlalchemy_fairqueue.sql import VERSION_COLUMN, named_schema

if TYPE_CHECKING:
    from sqlalchemy import Connection, Pool

_VERSION = Shape((f"{VERSION_COLUMN} as version",))
_READ_ONLY = text("select pg_catalog.current_setting('transaction_read_only')")

# The schemas that can be used. By pool: an engine with other execution options shares it.
_usable: WeakKeyDictionary[Pool, set[str | None]] = WeakKeyDictionary()


def version(connection: Connection, schema: str | None) -> int:
    """The version that a schema holds.

    Raises:
        SchemaMismatch: It holds none.
    """
    return call(schema, "fq_version", "find the version of fairqueue's schema", _VERSION).value(connection)


def check_writable(connection: Connection) -> None:
    """Refuse a server that answers and takes no writes.

    Raises:
        FairQueueError: It says what to do.
    """
    if connection.execute(_READ_ONLY).scalar_one() == "on":
        raise FairQueueError(
            "the server takes no writes: it is a standby, or transactions are read-only by default; connect to the "
            "primary (target_session_attrs=read-write in the URL)"
        )


def check_installed(connection: Connection, schema: str | None) -> None:
    """Refuse a schema that fairqueue is not installed in, or in a version that is too old. A newer one is usable.

    Args:
        connection: Where to ask. Unless the answer is known, one short statement is sent in its transaction.
        schema: Where the queue is installed; None: found through the search_path.

    Raises:
        SchemaMismatch: It says what is installed, what is needed, and the migration to write.
    """
    usable = _usable.setdefault(connection.engine.pool, set())
    if schema in usable:
        return
    try:
        found = version(connection, schema)
    except SchemaMismatch as error:
        missing = f"fairqueue is not installed in {named_schema(schema)}; {to_install(schema)}"
        raise SchemaMismatch(missing) from error.__cause__
    if problem := too_old(found, schema):
        raise SchemaMismatch(f"{problem}; put {to_upgrade(found, schema)} into an Alembic migration and run it")
    usable.add(schema)
