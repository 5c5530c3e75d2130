"""Messages that are not settled: found page by page, counted in their channel, moved to another one, made due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.database.policies import new_policy_json

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import ChannelPolicy, MessageState, MoveOutcome


class MessagePosition(NamedTuple):
    """The end of a page of messages.

    Attributes:
        step: The part of the order: 1 and 2 of a channel, 3 and 4 of a queue.
        at: The position within step 2.
        message_id: The last message that was looked at.
    """

    step: int
    at: int
    message_id: int


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Messages of a queue that are not settled. What is given must all be met; None restricts nothing.

    Attributes:
        channel: Only those of this channel.
        state: Only those in this state now.
        kind: Only those of this kind.
        key: Only the one that holds this key, of a channel.
    """

    channel: str | None = None
    state: MessageState | None = None
    kind: str | None = None
    key: str | None = None


@once_a_schema
def find_messages_clause(schema: str | None) -> Clause:
    """``fq_find_messages``."""
    types = {
        "queue": "text",
        "channel": "text",
        "state": "text",
        "kind": "text",
        "key": "text",
        "step": "integer",
        "at": "bigint",
        "message_id": "bigint",
        "limit": "integer",
        "scan": "integer",
    }
    return call(schema, "fq_find_messages", "message_id, step, at, last_id", **types)


def find_messages(
    connection: Connection,
    target: Target,
    which: MessageFilter,
    *,
    after: MessagePosition | None,
    limit: int,
    scan: int,
) -> tuple[list[int], MessagePosition | None]:
    """The ids of a page of messages, in order, and where the next page begins; None: this is the last.

    Args:
        connection: Where to ask.
        target: The queue.
        which: Only these.
        after: Where the page before has ended.
        limit: Most to return.
        scan: Most to look at.
    """
    step, at, message_id = after or (None, None, None)
    parameters = {
        "queue": target.queue,
        "channel": which.channel,
        "state": which.state,
        "kind": which.kind,
        "key": which.key,
        "step": step,
        "at": at,
        "message_id": message_id,
        "limit": limit,
        "scan": scan,
    }
    rows = fetch(
        connection, find_messages_clause(target.schema), parameters, f"find messages of queue {target.queue!r}"
    )
    ids = [row.message_id for row in rows if row.message_id is not None]
    if len(ids) == len(rows):
        return ids, None
    last = rows[-1]
    return ids, MessagePosition(last.step, last.at, last.last_id)


@once_a_schema
def messages_ahead_clause(schema: str | None) -> Clause:
    """``fq_messages_ahead``."""
    types = {"message_id": "bigint", "most": "integer"}
    return call(schema, "fq_messages_ahead", "fq_messages_ahead as ahead", queue="text", **types)


def messages_ahead(connection: Connection, target: Target, message_id: int, *, most: int) -> int | None:
    """The number of messages before a message in its channel, counted up to *most*; None: it does not wait."""
    parameters = {"queue": target.queue, "message_id": message_id, "most": most}
    [row] = fetch(
        connection, messages_ahead_clause(target.schema), parameters, f"count messages of queue {target.queue!r}"
    )
    ahead: int | None = row.ahead
    return ahead


@once_a_schema
def move_message_clause(schema: str | None) -> Clause:
    """``fq_move_message``."""
    types = {"message_id": "bigint", "channel": "text", "policy": "jsonb", "notify": "boolean"}
    return call(schema, "fq_move_message", "fq_move_message as outcome", queue="text", **types)


def move_message(
    connection: Connection, target: Target, message_id: int, channel: str, *, policy: ChannelPolicy, notify: bool
) -> MoveOutcome:
    """Put a message that waits into another channel.

    Args:
        connection: In a transaction.
        target: The queue.
        message_id: The message.
        channel: The channel.
        policy: For a channel that is made now, if the queue has no configured one.
        notify: Whether waiting consumers may be woken.
    """
    parameters = {
        "queue": target.queue,
        "message_id": message_id,
        "channel": channel,
        "policy": new_policy_json(policy),
        "notify": may_notify(connection, notify),
    }
    doing = f"move message {message_id} of queue {target.queue!r} to channel {channel!r}"
    [row] = fetch(connection, move_message_clause(target.schema), parameters, doing)
    outcome: MoveOutcome = row.outcome
    return outcome


@once_a_schema
def make_due_clause(schema: str | None) -> Clause:
    """``fq_make_due``."""
    types = {"message_id": "bigint", "notify": "boolean"}
    return call(schema, "fq_make_due", "fq_make_due as outcome", queue="text", **types)


def make_due(
    connection: Connection, target: Target, message_id: int, *, notify: bool
) -> Literal["due", "unchanged", "leased", "missing"]:
    """Make a message that is due later due now.

    Args:
        connection: In a transaction.
        target: The queue.
        message_id: The message.
        notify: Whether waiting consumers may be woken.
    """
    parameters = {"queue": target.queue, "message_id": message_id, "notify": may_notify(connection, notify)}
    doing = f"make message {message_id} of queue {target.queue!r} due"
    [row] = fetch(connection, make_due_clause(target.schema), parameters, doing)
    outcome: Literal["due", "unchanged", "leased", "missing"] = row.outcome
    return outcome
