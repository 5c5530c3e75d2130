"""Requests to workers to stop: made by operators, read by workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue.database.calls import call, fetch, named, once_a_schema
from sqlalchemy_fairqueue.times import any_instant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to the workers of a queue that have one name.

    Attributes:
        queue: The queue.
        requested_by: Who asked last.
        requested_at: When, in UTC. Each request to the same consumer has another time.
    """

    queue: str
    requested_by: str
    requested_at: datetime


@once_a_schema
def request_stop_clause(schema: str | None) -> Clause:
    """``fq_request_stop``."""
    return call(schema, "fq_request_stop", "fq_request_stop as alive", queue="text", consumer="text", by="text")


def request_stop(connection: Connection, target: Target, consumer: str, by: str | None) -> bool:
    """Ask workers to stop. Whether a consumer of that name has a live lease."""
    parameters = {"queue": target.queue, "consumer": consumer, "by": by}
    doing = f"ask consumer {consumer!r} of queue {target.queue!r} to stop"
    [row] = fetch(connection, request_stop_clause(target.schema), parameters, doing)
    return cast("bool", row.alive)


@once_a_schema
def stop_requests_clause(schema: str | None) -> Clause:
    """``fq_stop_requests``."""
    # A text that the connection's encoding lacks would cost all rows.
    columns = "queue, pg_catalog.convert_to(requested_by, 'UTF8') as requested_by, requested_at"
    return call(schema, "fq_stop_requests", columns, queues="text[]", consumer="text")


def stop_requests(
    connection: Connection, schema: str | None, queues: Sequence[str], consumer: str
) -> list[StopRequest]:
    """The requests that stand for a consumer of these queues."""
    parameters = {"queues": list(queues), "consumer": consumer}
    doing = f"look for requests to {consumer!r} to stop"
    rows = fetch(connection, stop_requests_clause(schema), parameters, doing, as_bytes=True)
    return [
        StopRequest(row.queue, str(row.requested_by, "utf-8", "replace"), any_instant(row.requested_at)) for row in rows
    ]


@once_a_schema
def asked_to_stop_clause(schema: str | None) -> Clause:
    """``fq_asked_to_stop``."""
    names = ", ".join(f"pg_catalog.convert_to({name}, 'UTF8') as {name}" for name in ("consumer", "requested_by"))
    return call(schema, "fq_asked_to_stop", f"{names}, requested_at", queue="text", each="queue")


def asked_to_stop(
    connection: Connection, schema: str | None, queues: Sequence[str]
) -> dict[tuple[str, str], StopRequest]:
    """Return the requests of the last hour to consumers of queues, by the queue's and the consumer's name."""
    if not queues:
        return {}
    doing = f"read the requests to consumers of {named(queues)} to stop"
    rows = fetch(connection, asked_to_stop_clause(schema), {"queue": list(queues)}, doing, as_bytes=True)
    found = {}
    for row in rows:
        queue = queues[row.place - 1]
        by = str(row.requested_by, "utf-8", "replace")
        found[queue, str(row.consumer, "utf-8", "replace")] = StopRequest(queue, by, any_instant(row.requested_at))
    return found
