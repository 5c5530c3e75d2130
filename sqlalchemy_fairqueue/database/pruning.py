"""Rows whose time is over: keys, results, waits for results, requests to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause


@once_a_schema
def prune_expired_clause(schema: str | None) -> Clause:
    """``fq_prune_expired``."""
    return call(schema, "fq_prune_expired", "fq_prune_expired as deleted", limit="integer")


def prune_expired(connection: Connection, schema: str | None, *, limit: int) -> int:
    """Delete such rows, up to *limit* of each kind. Return how many of the kind of which it deleted the most."""
    [row] = fetch(connection, prune_expired_clause(schema), {"limit": limit}, "prune what has expired")
    return cast("int", row.deleted)
