"""Results of handlers: for how long a queue keeps them, what became of messages, and waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlalchemy_fairqueue.database.calls import Call, may_notify
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target

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


def results(connection: Connection, target: Target, message_ids: Sequence[int]) -> list[FoundResult]:
    """The ends of messages, in their order."""
    doing = f"read results of queue {target.queue!r}"
    rows = target.read(connection, "fq_results", doing, ids=list(message_ids))
    return [FoundResult(**{name: row[name] for name in row if name != "message_id"}) for row in rows]


def begin_result_wait(connection: Connection, target: Target, message_id: int, waiter: UUID, wait: timedelta) -> None:
    """Register that somebody waits for so long for what becomes of a message. The caller commits."""
    target.call(
        "fq_begin_result_wait",
        f"wait for the result of message {message_id}",
        message_id=message_id,
        waiter=str(waiter),
        wait=microseconds(wait),
    ).rows(connection)


def end_result_wait(connection: Connection, target: Target, message_id: int, waiter: UUID) -> None:
    """Somebody waits no more."""
    doing = f"stop waiting for the result of message {message_id}"
    parameters = {"message_id": message_id, "waiter": str(waiter)}
    target.call("fq_end_result_wait", doing, **parameters).rows(connection)


def wake_results(connection: Connection, target: Target, message_ids: Sequence[int]) -> Call | None:
    """The call that notifies those who wait for results of messages. None: the transaction cannot notify."""
    if not may_notify(connection, notify=True):
        return None
    doing = f"wake those who wait in queue {target.queue!r}"
    return target.call("fq_wake_results", doing, ids=list(message_ids))
