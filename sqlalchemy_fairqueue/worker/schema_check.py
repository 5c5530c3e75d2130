"""Refuses to work on a schema that this library does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import SchemaMismatch, to_install
from sqlalchemy_fairqueue.installation import version_of
from sqlalchemy_fairqueue.sql import LATEST_VERSION

if TYPE_CHECKING:
    from sqlalchemy import Connection


def check_schema(connection: Connection, schema: str | None) -> int:
    """The version of the installed schema.

    Raises:
        SchemaMismatch: There is none, or a newer one than this library knows.
    """
    place = "" if schema is None else f", schema={schema!r}"
    where = "the search_path" if schema is None else f"schema {schema!r}"
    try:
        version = version_of(connection, schema)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"no queue is installed in {where}; {to_install(schema)}") from error
    if not 1 <= version <= LATEST_VERSION:
        raise SchemaMismatch(
            f"the queue in {where} has version {version}, and this library knows up to {LATEST_VERSION}; "
            f"upgrade sqlalchemy-fairqueue, or run op.downgrade_fairqueue({version}, {LATEST_VERSION}{place})"
        )
    return version
