"""Errors of the database as ours, and the words of those about the installed version, with the operation to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.drivers import hide_row, refusal_of
from sqlalchemy_fairqueue.errors import FairQueueError, SchemaMismatch
from sqlalchemy_fairqueue.sql import (
    IS_UNRELEASED,
    NEEDED_VERSION,
    UNRELEASED,
    latest_version,
    named_schema,
    schema_argument,
)

if TYPE_CHECKING:
    from sqlalchemy.exc import StatementError


def refuse(error: StatementError, doing: str) -> NoReturn:
    """Raise the error for a statement that failed: one of this package, or SQLAlchemy's. Neither shows contents.

    The parameters stay in its ``params``.
    """
    error.hide_parameters = True
    hide_row(error)
    refusal = translated(error, doing) if isinstance(error, DBAPIError) else None
    if refusal is None:
        raise error
    raise refusal from error


def translated(error: DBAPIError, doing: str) -> FairQueueError | None:
    """The error of this package for what the database refused; None if its SQLSTATE has no class."""
    refusal = refusal_of(error)
    kind = FairQueueError.of_sqlstate.get(refusal.sqlstate)
    if kind is None:
        return None
    problem = f"{refusal.message} ({refusal.detail})" if refusal.detail else refusal.message
    hint = refusal.hint
    if kind is SchemaMismatch:
        # Raised within a function: then it is installed.
        hint = to_repair() if refusal.context else to_install()
    return kind(f"cannot {doing}: {problem}; {hint or 'see the documentation of the call'}")


def to_install(schema: str | None = None) -> str:
    """Advice where no queue is found: the migration to the newest version, for the schema that was named."""
    operation = f"op.create_fairqueue(version={latest_version()}{schema_argument(schema)})"
    return (
        f"put {operation} into an Alembic migration and run it, or give Queue(schema=...) the schema it was installed "
        f"in; a database without migrations, as of tests, gets it by install_fairqueue(engine{schema_argument(schema)})"
    )


def to_repair() -> str:
    """Advice where a function of the queue was found, and something that it names was not."""
    return (
        "a function of fairqueue is there, and what it names is not: after a rename of its schema put "
        f"op.repair_fairqueue(version={latest_version()}, schema=...) with the new name into an Alembic migration and "
        "run it, otherwise see by find_drift() what is missing"
    )


def too_old(version: int, schema: str | None) -> str | None:
    """The words for a version that is older than this library needs; None: this library can use it."""
    if version >= NEEDED_VERSION:
        return None
    if version == UNRELEASED:
        return f"{named_schema(schema)} {IS_UNRELEASED}"
    return (
        f"{named_schema(schema)} holds version {version} of fairqueue's schema, and this library needs version "
        f"{NEEDED_VERSION}"
    )


def to_upgrade(version: int, schema: str | None) -> str:
    """The operation that brings an installation to the version that this library needs, or makes it anew."""
    if version == UNRELEASED:
        return f"op.create_fairqueue(version={latest_version()}{schema_argument(schema)})"
    return f"op.upgrade_fairqueue({version}, {NEEDED_VERSION}{schema_argument(schema)})"
