"""Recognises fairqueue's tables in the user's metadata, among Alembic's operations, and in the database.

A table's name is not enough, since the user may have a table of that name. The columns must match too, or the schema
must hold an installation. The exception is a staging table of a load: its name and its schema's name are enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import UserDefinedType

from sqlalchemy_fairqueue.sql import find_drift
from sqlalchemy_fairqueue.sql.catalog import expected_catalog, recognised_version
from sqlalchemy_fairqueue.sql.files import latest_version, tables, versions
from sqlalchemy_fairqueue.sql.schema import STAGE_COLUMNS, STAGE_NAME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.sql import Difference
    from sqlalchemy_fairqueue.sql.catalog import State


class TransactionId(UserDefinedType[str]):
    """PostgreSQL's ``xid8``, the type of transaction ids."""

    cache_ok = True

    def get_col_spec(self, **_arguments: object) -> str:
        return "xid8"


class RoleName(UserDefinedType[str]):
    """PostgreSQL's ``regrole``, the type of the column ``role`` in ``fq_grant``, the table of the grants."""

    cache_ok = True

    def get_col_spec(self, **_arguments: object) -> str:
        return "regrole"


# SQLAlchemy lacks these types, and would warn whenever it reflects the tables.
ischema_names.setdefault("xid8", TransactionId)
ischema_names.setdefault("regrole", RoleName)

_STAGE = re.compile(STAGE_NAME)

_PARTITIONS = """
select c.relname, p.relname
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
join pg_class p on p.oid = i.inhparent
join pg_namespace n on n.oid = p.relnamespace
where n.nspname = :schema
  and p.relname = any (:tables)
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """The objects of fairqueue in a schema of the database.

    Attributes:
        version: None if nothing is installed. Without ``fq_version()``, the version that the objects resemble most.
        partitions: Maps the name of each partition to the name of its table.
    """

    version: int | None
    partitions: Mapping[str, str]
    drift: tuple[Difference, ...]

    @property
    def newer(self) -> bool:
        return self.version is not None and self.version > latest_version()

    def holds(self, table: str, columns: Collection[str]) -> bool:
        table = self.partitions.get(table, table)
        if self.newer:
            return table.startswith("fq_")
        return is_ours(table, columns) or (self.version is not None and table in tables(latest_version()))

    def names(self, name: str) -> bool:
        return self.version is not None and (name in _functions_and_triggers() or self.holds(name, ()))

    def differing(self, table: str, *states: State) -> set[str]:
        """Return the names of the columns, constraints and indexes whose drift is one of *states*.

        Columns and constraints are those of *table*. Indexes are those of every table in the installation.
        """
        kinds = {"column", "constraint", "index"}
        found = [one for one in self.drift if one.kind in kinds and one.state in states]
        names = [(one.kind, *one.name.rpartition(".")) for one in found]
        return {name for kind, of, _, name in names if kind == "index" or of == table}

    def there(self, table: str) -> frozenset[str]:
        """Return the names of a table's objects, ours and the user's; none if the installed version lacks the table."""
        if self.version is None or table not in tables(self.version):
            return frozenset()
        return names_in(table) | self.differing(table, "unexpected")


def inspect_schema(connection: Connection, schema: str | None) -> Installation:
    if schema is None:
        return Installation(None, {}, ())
    version = recognised_version(connection, schema)
    names = {"schema": schema, "tables": list(tables(latest_version()))}
    partitions = {row[0]: row[1] for row in connection.execute(text(_PARTITIONS), names)}
    drift = tuple(find_drift(connection, schema)) if version in versions() else ()
    return Installation(version, partitions, drift)


def is_ours(table: str, columns: Collection[str]) -> bool:
    if _STAGE.fullmatch(table):
        return set(columns) >= STAGE_COLUMNS
    return any(table in of_version and of_version[table] <= set(columns) for of_version in map(_columns, versions()))


def is_stage(table: str, schema: str | None) -> bool:
    return schema is not None and schema.endswith("_stages") and _STAGE.fullmatch(table) is not None


def names_in(table: str) -> frozenset[str]:
    """Return the names of the columns, indexes, constraints and triggers that one of our tables has in any version."""
    return frozenset(
        name.rpartition(".")[2]
        for version in versions()
        for key, facts in expected_catalog(version).items()
        for kind, _, name in [key.partition(" ")]
        if kind != "function" and facts.get("table", name.partition(".")[0]) == table
    )


@cache
def _functions_and_triggers() -> frozenset[str]:
    return frozenset(
        name.partition("(")[0].rpartition(".")[2]
        for version in versions()
        for key in expected_catalog(version)
        for kind, _, name in [key.partition(" ")]
        if kind in {"function", "trigger"}
    )


@cache
def _columns(version: int) -> dict[str, set[str]]:
    columns: dict[str, set[str]] = {}
    for key in expected_catalog(version):
        kind, _, name = key.partition(" ")
        if kind == "column":
            table, _, column = name.partition(".")
            columns.setdefault(table, set()).add(column)
    return columns
