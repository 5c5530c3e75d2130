"""Compares the grants that a MetaData declares with the grants in a database."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import MetaData

from alembic_ext.grants import GrantFairqueueOp, RevokeFairqueueOp
from sqlalchemy_fairqueue.sql.grants import read_grants

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from alembic.operations import MigrateOperation
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.sql.grants import RoleGrant

_log = logging.getLogger("alembic.autogenerate.fairqueue")

Declared = dict["str | None", "tuple[str | None, tuple[RoleGrant, ...]]"]
"""For each schema, by its name in the database: its name as it was declared (or None), and its declared grants."""


def declared_grants(metadata: MetaData | Sequence[MetaData] | None, default: str | None) -> Declared:
    each = [metadata] if isinstance(metadata, MetaData) else list(metadata or ())
    found: Declared = {}
    for one in each:
        for schema, grants in one.info.get("fairqueue_grants", {}).items():
            name = default if schema is None else str(schema)
            _, before = found.get(name, (schema, ()))
            found[name] = (schema, (*before, *grants))
    return found


def grant_changes(
    connection: Connection, schema: str | None, given: str | None, wanted: Collection[RoleGrant], version: int | None
) -> list[MigrateOperation]:
    """Return the operations that change the grants in *schema* to *wanted*.

    *schema* is the schema's name in the database; None if the connection has no default schema. *given* is the declared
    name; None for the default schema. *version* is None if nothing is installed.
    """
    have = {} if version is None or schema is None else {(one.role, one.kind): one for one in _read(connection, schema)}
    made: list[MigrateOperation] = []
    for one in sorted(wanted, key=lambda grant: (grant.role, grant.kind)):
        before = have.pop((one.role, one.kind), None)
        if before != one:
            _log.info("Detected grant of %s to role %r in schema %r", one.kind, one.role, schema)
            made.append(GrantFairqueueOp(one, given, before=before))
    for one in have.values():
        _log.info("Detected grant of %s to role %r in schema %r that is not declared", one.kind, one.role, schema)
        made.append(RevokeFairqueueOp(one.role, one.kind, given, before=one))
    return made


def _read(connection: Connection, schema: str) -> list[RoleGrant]:
    return [one.grant for one in read_grants(connection, schema)]
