"""Blocks that look before anything is changed, and refuse with what to do.

The same text guards a script and a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.files import functions, latest_version, relations, tables, versions
from sqlalchemy_fairqueue.sql.schema import BODY, IS_UNRELEASED, block, part, quoted_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA_MISMATCH = "QF004"
"""SQLSTATE of a refusal: the schema does not hold what the operation needs, or holds what it would make."""

_VARIABLES = {"v_nameless": "boolean", "v_tables": "text[]", "v_taken": "text", "v_version": "integer"}

# A setting of the transaction: where the next statement does not see it, each has been committed by itself.
_PASSED = "  perform set_config('fairqueue.guard', 'passed', true);"


def install_guard(version: int, schema: str | None) -> str:
    """Return a block that raises unless the schema exists and every name that the version needs in it is free."""
    return _block([part("is_named"), part("is_not_installed"), _taken(_names(version))], schema)


def installed_guard(version: int, schema: str | None) -> str:
    """Return a block that raises unless the schema holds exactly this version."""
    return _block(_installed(version), schema)


def repair_guard(version: int, schema: str | None) -> str:
    """Return a block that raises unless the schema holds this version, or its tables without ``fq_version()``."""
    checks = part(
        "repairable",
        known=_array(tables(latest_version())),
        tables=_array(tables(version)),
        installed="\n".join(_installed(version)),
        version=str(version),
    )
    return _block([checks], schema)


def grants_guard(schema: str | None) -> str:
    """Return a block that raises unless the schema holds a version that this library knows."""
    known = part("is_known", versions=", ".join(map(str, versions())))
    return _block([part("is_named"), part("read_version"), known], schema)


def change_guard(before: int, after: int, schema: str | None) -> str:
    """Return a block that raises unless the schema holds one version, and the names that the other adds are free.

    And unless the transaction sees what others commit: an installation has nothing yet, and needs no such transaction.
    """
    there = set(_names(before))
    added = [name for name in _names(after) if name not in there]
    return _block([part("read_committed"), *_installed(before), *([_taken(added)] if added else [])], schema)


def same_transaction_guard(refusal: str) -> str:
    """Return a block that raises unless it runs in the transaction of the guard before it."""
    return part("same_transaction", body=BODY, refusal=quoted_literal(refusal))


def _names(version: int) -> tuple[str, ...]:
    return (*relations(version), *functions(version))


def _taken(names: Iterable[str]) -> str:
    return part("names_are_free", names=_array(names))


def _array(names: Iterable[str]) -> str:
    return ", ".join(quoted_literal(name) for name in sorted(names))


def _installed(version: int) -> list[str]:
    return [part("is_named"), part("read_version"), part("is_version", version=str(version))]


def _block(checks: Iterable[str], schema: str | None) -> str:
    before = (_PASSED, part("schema_exists"), part("look", unreleased=IS_UNRELEASED))
    return block("\n".join([*before, *checks]), schema, _VARIABLES)
