"""Catalog of an installation: the objects of fairqueue in a schema, as PostgreSQL's catalog describes them.

Facts are texts that are the same on every server version and in every schema: names of the schema are taken out.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.sql.files import checked_version, folder, names_of_ours, query, versions
from sqlalchemy_fairqueue.sql.schema import STAGE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

Catalog = dict[str, dict[str, str]]
"""Facts by object: ``{"column fq_message.kind": {"type": "text", ...}, "function fq_now()": {...}, ...}``.

A fact that is not so is left out."""

_KINDS = ("table", "column", "index", "constraint", "function", "trigger", "rule", "schema")
# A role that may create functions in a schema of the search_path could have its own called by the reader.
_PLAIN = {"search_path": "pg_catalog, pg_temp", "quote_all_identifiers": "off"}
_SETTINGS = text(
    "select current_setting('search_path') as search_path, "
    "current_setting('quote_all_identifiers') as quote_all_identifiers"
)
_SET = text(
    "select set_config('search_path', :search_path, :local), "
    "set_config('quote_all_identifiers', :quote_all_identifiers, :local)"
)


def read_catalog(connection: Connection, schema: str) -> Catalog:
    """Read the objects of a schema that have names of fairqueue's, of any version, and what belongs to them.

    Partitions are their table's affair and are left out. Nothing is locked, and nothing but the catalog is read.
    """
    names = names_of_ours(schema)
    ours, stages_schema = query("ours"), STAGE_SCHEMA.format("cast(:schema as text)")
    found: Catalog = {}
    with _plain(connection):
        for kind in _KINDS:
            statement = text(query(kind).replace("{ours}", ours).replace("{stages}", stages_schema))
            for row in connection.execute(statement, names).mappings():
                found[f"{kind} {row['name']}"] = {fact: row[fact] for fact in row if fact != "name" and row[fact]}
    return found


@contextmanager
def _plain(connection: Connection) -> Iterator[None]:
    """Set what makes the catalog's texts the same everywhere, and lets no function but PostgreSQL's own be called.

    They are as they were when this ends. Where a statement failed, its transaction's end does that.
    """
    before = connection.execute(_SETTINGS).one()._asdict()
    # In AUTOCOMMIT a transaction's setting would be over with the statement.
    lasting = getattr(connection.connection.dbapi_connection, "autocommit", False)

    connection.execute(_SET, {**_PLAIN, "local": not lasting})
    try:
        yield
    except BaseException:
        if lasting:
            connection.execute(_SET, {**before, "local": False})
        raise
    connection.execute(_SET, {**before, "local": not lasting})


def expected_catalog(version: int) -> Mapping[str, Mapping[str, str]]:
    """Return what :func:`read_catalog` reads of a correct installation of a version; do not change it.

    Each ``vN/catalog.json`` has what differs from the version before.

    Raises:
        ValueError: The version is not known.
    """
    return _frozen(checked_version(version))


@cache
def _frozen(version: int) -> Catalog:
    changes: dict[str, dict[str, str] | None] = json.loads((folder(version) / "catalog.json").read_text("utf-8"))
    known = _before(version) | changes
    return {name: facts for name, facts in known.items() if facts is not None}


def changed_catalog(version: int, catalog: Catalog) -> dict[str, dict[str, str] | None]:
    """Return what ``vN/catalog.json`` holds: what differs from the version before; None for what is gone."""
    before = _before(version)
    return {name: facts for name, facts in catalog.items() if before.get(name) != facts} | {
        name: None for name in before if name not in catalog
    }


def _before(version: int) -> dict[str, dict[str, str] | None]:
    return {} if version == versions()[0] else {**_frozen(version - 1)}
