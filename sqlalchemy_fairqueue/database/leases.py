"""Leases: extend them, end them, and read the tokens of the deliveries that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy_fairqueue.database.calls import call, fetch, fetch_rows, once_a_schema
from sqlalchemy_fairqueue.database.tokens import Token
from sqlalchemy_fairqueue.times import instant, microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target


class ExtendedLease(NamedTuple):
    """A lease after a heartbeat.

    Attributes:
        lease_id: The lease.
        expires_at: When it ends now. None: it is lost.
        cancelled: The messages that are held under it and were cancelled.
    """

    lease_id: int
    expires_at: datetime | None
    cancelled: list[int]


@once_a_schema
def extend_clause(schema: str | None) -> Clause:
    """``fq_extend``."""
    types = {"lease_id": "bigint", "lease": "bigint", "ids": "bigint[]", "deliveries": "integer[]", "queue": "text"}
    return call(schema, "fq_extend", "fq_extend as expires_at", **types)


def extend(connection: Connection, target: Target, tokens: Sequence[Token], lease: timedelta) -> datetime | None:
    """Let a lease live for *lease* from now; it is never shortened. The caller commits.

    Args:
        connection: Where to send it.
        target: The queue.
        tokens: Deliveries that must be held under the lease; at least one, all of the same lease.
        lease: How long it is to live.

    Returns:
        When it ends now. None: it has ended, or one of the deliveries is not held under it any more.
    """
    lease_id = tokens[0].lease_id
    [[expires_at]] = fetch_rows(
        connection,
        extend_clause(target.schema),
        {
            "lease_id": lease_id,
            "lease": microseconds(lease),
            "ids": [token.message_id for token in tokens],
            "deliveries": [token.deliveries for token in tokens],
            "queue": target.queue,
        },
        f"extend lease {lease_id}",
    )
    return None if expires_at is None else instant(expires_at)


@once_a_schema
def heartbeat_clause(schema: str | None) -> Clause:
    """``fq_heartbeat``."""
    types = {"lease_ids": "bigint[]", "lease": "bigint", "queue": "text"}
    return call(schema, "fq_heartbeat", "lease_id, expires_at, cancelled", **types)


def heartbeat(
    connection: Connection, target: Target, lease_ids: Sequence[int], lease: timedelta
) -> list[ExtendedLease]:
    """Let leases live for *lease* from now, and learn of cancelled messages. The caller commits."""
    rows = fetch(
        connection,
        heartbeat_clause(target.schema),
        {"lease_ids": list(lease_ids), "lease": microseconds(lease), "queue": target.queue},
        f"extend {len(lease_ids)} leases of queue {target.queue!r}",
    )
    return [
        ExtendedLease(row.lease_id, None if row.expires_at is None else instant(row.expires_at), row.cancelled or [])
        for row in rows
    ]


@once_a_schema
def end_leases_clause(schema: str | None) -> Clause:
    """``fq_end_leases``."""
    return call(schema, "fq_end_leases", "fq_end_leases as ended", queue="text", lease_ids="bigint[]")


def end_leases(connection: Connection, target: Target, lease_ids: Sequence[int]) -> int:
    """End leases under which nothing is held. The caller commits. Returns how many have ended."""
    parameters = {"queue": target.queue, "lease_ids": list(lease_ids)}
    doing = f"end {len(lease_ids)} leases of queue {target.queue!r}"
    [row] = fetch(connection, end_leases_clause(target.schema), parameters, doing)
    ended: int = row.ended
    return ended


@once_a_schema
def held_clause(schema: str | None) -> Clause:
    """``fq_held``."""
    return call(schema, "fq_held", "message_id, row_id, deliveries", lease_id="bigint")


def held(connection: Connection, target: Target, lease_id: int) -> list[Token]:
    """The tokens of what is held under a lease, in the order of the message ids."""
    parameters = {"lease_id": lease_id}
    rows = fetch(connection, held_clause(target.schema), parameters, f"find what is held under lease {lease_id}")
    return [Token(row.message_id, row.row_id, lease_id, row.deliveries) for row in rows]
