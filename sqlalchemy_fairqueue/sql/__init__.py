"""The SQL of every version of the schema, as text: what to send, in which order, to have it or to be rid of it.

A function is one file, ``vN/<function>.sql``, and a table with its indexes is one file, ``vN/tables/<table>.sql``.
Version N of an object is the newest file in v1..vN, and a released file never changes: so every version can be put
together for ever, and a migration never reads the models, which move. This module sends nothing and knows no
connection: everything in it is a pure function of a version and a schema.
"""

from __future__ import annotations

from sqlalchemy_fairqueue.sql.files import LATEST_VERSION, functions, relations, tables, versions
from sqlalchemy_fairqueue.sql.guards import SCHEMA_MISMATCH, install_guard, installed_guard
from sqlalchemy_fairqueue.sql.schema import in_schema, quoted, quoted_literal
from sqlalchemy_fairqueue.sql.statements import drop_statements, install_statements

__all__ = [
    "LATEST_VERSION",
    "SCHEMA_MISMATCH",
    "drop_statements",
    "functions",
    "in_schema",
    "install_guard",
    "install_statements",
    "installed_guard",
    "quoted",
    "quoted_literal",
    "relations",
    "tables",
    "versions",
]
