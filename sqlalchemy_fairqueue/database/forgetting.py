"""Channels that are forgotten when they have been idle for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause


@once_a_schema
def mark_idle_channels_clause(schema: str | None) -> Clause:
    """``fq_mark_idle_channels``."""
    return call(schema, "fq_mark_idle_channels", "last_id, marked", after="bigint", limit="integer")


def mark_idle_channels(connection: Connection, schema: str | None, *, after: int, limit: int) -> int | None:
    """Mark the channels that are to be forgotten among the next *limit*; the last id, None: there are no more."""
    [row] = fetch(connection, mark_idle_channels_clause(schema), {"after": after, "limit": limit}, "mark idle channels")
    last: int | None = row.last_id
    return last


@once_a_schema
def forget_channels_clause(schema: str | None) -> Clause:
    """``fq_forget_channels``."""
    return call(schema, "fq_forget_channels", "forgotten, more", limit="integer")


def forget_channels(connection: Connection, schema: str | None, *, limit: int) -> tuple[int, bool]:
    """Delete marked channels, once no transaction runs that may not have seen the marks.

    Returns:
        How many were deleted, and whether there may be others.
    """
    [row] = fetch(connection, forget_channels_clause(schema), {"limit": limit}, "forget idle channels")
    return row.forgotten, row.more
