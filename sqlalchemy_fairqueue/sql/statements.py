"""The statements that install a version and those that drop it, one at a time, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.files import functions, tables
from sqlalchemy_fairqueue.sql.guards import install_guard, installed_guard
from sqlalchemy_fairqueue.sql.schema import QUALIFIER, in_schema

if TYPE_CHECKING:
    from collections.abc import Iterator


def install_statements(version: int, schema: str | None) -> Iterator[str]:
    """Statements that install a version into an existing schema: a guard, the tables, the functions.

    Each is one statement without its semicolon, to be sent verbatim, all of them in one transaction.

    Raises:
        ValueError: The version is not known, or PostgreSQL cannot keep the schema's name.
    """
    yield install_guard(version, schema)
    for table in tables(version).values():
        for statement in table:
            yield in_schema(statement, schema)
    for function in functions(version).values():
        yield in_schema(function, schema)


def drop_statements(version: int, schema: str | None) -> Iterator[str]:
    """Statements that take a version away with everything in it: a guard, the functions, the tables.

    Each is one statement without its semicolon, to be sent verbatim, all of them in one transaction. Nothing is
    cascaded: where an object of the user's depends on one of ours, PostgreSQL refuses.

    Raises:
        ValueError: The version is not known, or PostgreSQL cannot keep the schema's name.
    """
    yield installed_guard(version, schema)
    for name in functions(version):
        yield in_schema(_drop("function", name), schema)
    for name in tables(version):
        yield in_schema(_drop("table", name), schema)


def _drop(kind: str, name: str) -> str:
    return f"drop {kind} {QUALIFIER}{name.removeprefix('fq_')}"
