"""Withdrawals: messages are cancelled or purged before they are delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify, once_a_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import CancelOutcome


@once_a_schema
def cancel_clause(schema: str | None) -> Clause:
    """``fq_cancel``."""
    types = {"queue": "text", "ids": "bigint[]", "notify": "boolean"}
    return call(schema, "fq_cancel", "message_id, outcome", **types)


def cancel(
    connection: Connection, target: Target, message_ids: Iterable[int], *, notify: bool
) -> dict[int, CancelOutcome]:
    """Cancel messages, in the order of their ids. Returns the outcome of those that are not simply cancelled.

    Args:
        connection: In a transaction.
        target: The queue.
        message_ids: The messages.
        notify: Whether those are woken who wait for their results.
    """
    parameters = {"queue": target.queue, "ids": sorted(message_ids), "notify": may_notify(connection, notify)}
    rows = fetch(connection, cancel_clause(target.schema), parameters, f"cancel messages of queue {target.queue!r}")
    return {row.message_id: row.outcome for row in rows}


@once_a_schema
def purge_channel_clause(schema: str | None) -> Clause:
    """``fq_purge_channel``."""
    return call(schema, "fq_purge_channel", "fq_purge_channel as purged", queue="text", channel="text")


def purge_channel(connection: Connection, target: Target, channel: str) -> int:
    """Delete the messages of a channel that no consumer holds. Returns how many."""
    [row] = fetch(
        connection,
        purge_channel_clause(target.schema),
        {"queue": target.queue, "channel": channel},
        f"purge channel {channel!r} of queue {target.queue!r}",
    )
    purged: int = row.purged
    return purged
