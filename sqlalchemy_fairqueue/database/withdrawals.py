"""Withdrawals: messages are cancelled or purged before they are delivered."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call, fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import CancelOutcome


@cache
def cancel_clause(schema: str | None) -> Clause:
    """``fq_cancel``."""
    return call(schema, "fq_cancel", "message_id, outcome", queue="text", ids="bigint[]")


def cancel(connection: Connection, target: Target, message_ids: Iterable[int]) -> dict[int, CancelOutcome]:
    """Withdraw messages, in the order of their ids. Returns the outcome of those that are not simply cancelled."""
    parameters = {"queue": target.queue, "ids": sorted(message_ids)}
    rows = fetch(connection, cancel_clause(target.schema), parameters, f"cancel messages of queue {target.queue!r}")
    return {row.message_id: row.outcome for row in rows}


@cache
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
