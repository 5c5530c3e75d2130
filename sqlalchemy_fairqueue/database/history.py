"""Partitions of the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause


class PartitionChange(NamedTuple):
    """A partition that was made or dropped."""

    partition: str
    action: str


@once_a_schema
def keep_history_clause(schema: str | None) -> Clause:
    """``fq_keep_history``."""
    return call(schema, "fq_keep_history", "partition, action", ahead="integer")


def keep_history(connection: Connection, schema: str | None, *, days_ahead: int) -> list[PartitionChange]:
    """Make the partitions of the days to come, and drop those that are older than every queue keeps."""
    parameters = {"ahead": days_ahead}
    rows = fetch(connection, keep_history_clause(schema), parameters, "keep the partitions of the history")
    return list(map(PartitionChange._make, rows))
