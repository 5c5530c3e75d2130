"""Words of error messages about the installed version: what is wrong with it, and the operation to paste."""

from __future__ import annotations

from sqlalchemy_fairqueue.sql import (
    IS_UNRELEASED,
    NEEDED_VERSION,
    UNRELEASED,
    latest_version,
    named_schema,
    schema_argument,
)


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
