"""Results of handlers: for how long a queue keeps them, what became of messages, and waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlalchemy_fairqueue.database.calls import Call, call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.times import any_instant, microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target

ResultState = Literal["completed", "unkept", "cancelled", "expired", "pending", "failed", "gone", "unknown"]


@dataclass(frozen=True, slots=True)
class FoundResult:
    """The end of a message.

    Attributes:
        state: What; see ``fq_results``.
        channel: Its channel. None: that is not known.
        kind: Its kind. None: that is not known.
        content: What its handler returned, encoded. None: None, or nothing is kept.
        reason: If the message is completed, why nothing is kept of it; if it died, why.
        error: The last error of a dead letter.
        finished_at: When it ended, in UTC.
        expires_at: Until when the result is kept, in UTC.
    """

    state: ResultState
    channel: str | None = None
    kind: str | None = None
    content: bytes | None = field(default=None, repr=False)
    reason: str | None = None
    error: str | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None


@once_a_schema
def results_clause(schema: str | None) -> Clause:
    """``fq_results``."""
    # A text that the connection's encoding lacks would cost all rows.
    texts = ", ".join(
        f"pg_catalog.convert_to({name}, 'UTF8') as {name}" for name in ("channel", "kind", "reason", "error")
    )
    columns = f"state, {texts}, content, finished_at, expires_at"
    return call(schema, "fq_results", columns, queue="text", ids="bigint[]")


def results(connection: Connection, target: Target, message_ids: Sequence[int]) -> list[FoundResult]:
    """The ends of messages, in their order."""
    parameters = {"queue": target.queue, "ids": list(message_ids)}
    doing = f"read results of queue {target.queue!r}"
    rows = fetch(connection, results_clause(target.schema), parameters, doing, as_bytes=True)
    return [
        FoundResult(
            state=row.state,
            channel=_text(row.channel),
            kind=_text(row.kind),
            content=row.content,
            reason=_text(row.reason),
            error=_text(row.error),
            finished_at=None if row.finished_at is None else any_instant(row.finished_at),
            expires_at=None if row.expires_at is None else any_instant(row.expires_at),
        )
        for row in rows
    ]


@once_a_schema
def begin_result_wait_clause(schema: str | None) -> Clause:
    """``fq_begin_result_wait``."""
    types = {"queue": "text", "message_id": "bigint", "waiter": "uuid", "wait": "bigint"}
    return call(schema, "fq_begin_result_wait", "1", **types)


def begin_result_wait(connection: Connection, target: Target, message_id: int, waiter: UUID, wait: timedelta) -> None:
    """Register that somebody waits for so long for what becomes of a message. The caller commits."""
    parameters = {
        "queue": target.queue,
        "message_id": message_id,
        "waiter": str(waiter),
        "wait": microseconds(wait),
    }
    fetch(
        connection, begin_result_wait_clause(target.schema), parameters, f"wait for the result of message {message_id}"
    )


@once_a_schema
def end_result_wait_clause(schema: str | None) -> Clause:
    """``fq_end_result_wait``."""
    return call(schema, "fq_end_result_wait", "1", queue="text", message_id="bigint", waiter="uuid")


def end_result_wait(connection: Connection, target: Target, message_id: int, waiter: UUID) -> None:
    """Somebody waits no more."""
    parameters = {"queue": target.queue, "message_id": message_id, "waiter": str(waiter)}
    doing = f"stop waiting for the result of message {message_id}"
    fetch(connection, end_result_wait_clause(target.schema), parameters, doing)


@once_a_schema
def wake_results_clause(schema: str | None) -> Clause:
    """``fq_wake_results``."""
    return call(schema, "fq_wake_results", "fq_wake_results as woken", queue="text", ids="bigint[]")


def wake_results_call(connection: Connection, target: Target, message_ids: Sequence[int]) -> Call | None:
    """The call that notifies those who wait for results of messages. None: the transaction cannot notify."""
    if not may_notify(connection, notify=True):
        return None
    parameters = {"queue": target.queue, "ids": list(message_ids)}
    return Call(wake_results_clause(target.schema), parameters, f"wake those who wait in queue {target.queue!r}")


def wake_results(connection: Connection, target: Target, message_ids: Sequence[int]) -> None:
    """Notify those who wait for results of messages, at the commit, if the transaction can."""
    found = wake_results_call(connection, target, message_ids)
    if found is not None:
        fetch(connection, *found)


def _text(value: bytes | None) -> str | None:
    return None if value is None else str(value, "utf-8", "replace")
