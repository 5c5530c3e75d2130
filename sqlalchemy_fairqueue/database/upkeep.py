"""Upkeep of an installation, which any worker does: partitions of the history, what has expired, idle channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy_fairqueue.database.calls import call

if TYPE_CHECKING:
    from sqlalchemy import Connection


class PartitionChange(NamedTuple):
    """A partition that was made or dropped."""

    partition: str
    action: str


def keep_history(connection: Connection, schema: str | None, *, days_ahead: int) -> list[PartitionChange]:
    """Make the partitions of the days to come, and drop those that are older than every queue keeps."""
    doing = "keep the partitions of the history"
    return list(map(PartitionChange._make, call(schema, "fq_keep_history", doing, ahead=days_ahead).rows(connection)))


def prune_expired(connection: Connection, schema: str | None, *, limit: int) -> int:
    """Delete keys, results, waits for results and requests to stop whose time is over, up to *limit* of each kind.

    Return how many of the kind of which it deleted the most.
    """
    return call(schema, "fq_prune_expired", "prune what has expired", limit=limit).value(connection)


def mark_idle_channels(connection: Connection, schema: str | None, *, after: int, limit: int) -> int | None:
    """Mark idle channels among the next *limit* rows. Return the last id, or None at the end."""
    [row] = call(schema, "fq_mark_idle_channels", "mark idle channels", after=after, limit=limit).rows(connection)
    return row.last_id


def forget_channels(connection: Connection, schema: str | None, *, limit: int) -> tuple[int, bool]:
    """Delete marked channels, once no transaction runs that may not have seen the marks.

    Returns:
        How many were deleted, and whether there may be others.
    """
    [row] = call(schema, "fq_forget_channels", "forget idle channels", limit=limit).rows(connection)
    return row.forgotten, row.more
