"""Refusals of the database to change the schema, as errors of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors.access import SchemaMismatch
from sqlalchemy_fairqueue.errors.transactions import IsolationError

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

    from sqlalchemy_fairqueue.errors.base import FairQueueError


def migration_refusal(error: DBAPIError, doing: str) -> FairQueueError | None:
    """Return the error for what a guard, or a read-only transaction, refused; None if it was anything else."""
    original = error.orig
    code = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    said = getattr(getattr(original, "diag", None), "message_primary", None) or str(original)
    match code:
        case "QF003":
            return IsolationError(f"{doing}: {said}")
        case "QF004":
            return SchemaMismatch(f"{doing}: {said}")
        case "25006":
            return IsolationError(
                f"{doing}: {said}; connect to the primary, and let the transaction write: leave out "
                "postgresql_readonly and default_transaction_read_only"
            )
        case _:
            return None
