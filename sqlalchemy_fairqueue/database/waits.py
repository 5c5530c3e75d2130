"""Waits of consumers: registered, so that producers wake them by a notification, and ended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy_fairqueue.database.calls import call, fetch, once_a_schema
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target

LONGEST_WAIT = timedelta(seconds=61)
"""A worker registers a wait for no longer."""


class RegisteredWait(NamedTuple):
    """A wait that producers know of.

    Attributes:
        lease_id: The lease that stands for it: a notification names one that waits.
        topic: The queue's name in notifications.
    """

    lease_id: int
    topic: str


@once_a_schema
def begin_wait_clause(schema: str | None) -> Clause:
    """``fq_begin_wait``."""
    return call(
        schema, "fq_begin_wait", "lease_id, topic", queue="text", consumer="text", lease_id="bigint", wait="bigint"
    )


def begin_wait(
    connection: Connection, target: Target, *, consumer: str, lease_id: int | None, duration: timedelta
) -> RegisteredWait:
    """Register that a consumer waits. The caller commits, and polls once more afterwards.

    Args:
        connection: Where it is the only statement of its transaction.
        target: The queue.
        consumer: Shown beside the lease.
        lease_id: The lease of the last wait.
        duration: How long the wait counts.
    """
    [row] = fetch(
        connection,
        begin_wait_clause(target.schema),
        {"queue": target.queue, "consumer": consumer, "lease_id": lease_id, "wait": microseconds(duration)},
        f"wait for queue {target.queue!r}",
    )
    return RegisteredWait._make(row)


@once_a_schema
def end_wait_clause(schema: str | None) -> Clause:
    """``fq_end_wait``."""
    return call(schema, "fq_end_wait", "1", lease_id="bigint")


def end_wait(connection: Connection, target: Target, lease_id: int | None) -> None:
    """End a wait. The caller commits."""
    fetch(
        connection, end_wait_clause(target.schema), {"lease_id": lease_id}, f"stop waiting for queue {target.queue!r}"
    )
