"""Periods of keys: what housekeeping does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause


@once_a_schema
def prune_keys_clause(schema: str | None) -> Clause:
    """``fq_prune_keys``."""
    return call(schema, "fq_prune_keys", "fq_prune_keys as keys", limit="integer")


def prune_keys(connection: Connection, schema: str | None, *, limit: int) -> int:
    """Delete the rows of keys whose period is over. How many."""
    [row] = fetch(connection, prune_keys_clause(schema), {"limit": limit}, "prune keys")
    return cast("int", row[0])
