"""Enqueues: messages are added to a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from sqlalchemy_fairqueue.database.calls import (
    Call,
    argument,
    call,
    fetch,
    fetch_rows,
    may_notify,
    once_a_schema,
    qualifier,
)
from sqlalchemy_fairqueue.database.policies import new_policy_json
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import ChannelPolicy, Enqueue, EnqueueOutcome

_MESSAGE_TYPES = {
    "channels": "text[]",
    "kinds": "text[]",
    "contents": "bytea[]",
    "headers": "jsonb[]",
    "delays": "bigint[]",
    "ats": "bigint[]",
    "priorities": "integer[]",
    "keys": "text[]",
    "max_attempts": "integer[]",
}
_ARRAYS = (*_MESSAGE_TYPES, "on_duplicates", "costs", "groups", "unique_fors", "from_ends")


class Content(bytes):
    """A payload as a parameter, which the logs of an engine with ``echo`` do not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Its length."""
        return f"<{len(self):,} bytes>"


class EncodedMessage(Protocol):
    """A message to be, with its payload encoded."""

    @property
    def message(self) -> Enqueue:
        """The message."""

    @property
    def content(self) -> bytes:
        """Its payload, encoded."""

    @property
    def headers(self) -> str | None:
        """Its headers as JSON text."""

    @property
    def max_attempts(self) -> int:
        """Its own or the queue's."""

    @property
    def group_id(self) -> UUID | None:
        """The group that it is to be a member of."""


class EnqueuedMessages(NamedTuple):
    """The outcomes of an enqueue, an element a message in the order in which the database took them.

    Attributes:
        ordinals: Which message of the call, from 1.
        message_ids: Its id, or that of the message that holds its key; None for one that was dropped or refused.
        outcomes: What became of it. "full": its channel is full, and the policy is to raise. None: all were created.
    """

    ordinals: list[int]
    message_ids: list[int | None]
    outcomes: list[EnqueueOutcome | Literal["full"]] | None

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Any]], count: int) -> EnqueuedMessages:
        """Those of so many messages, from what an :func:`enqueue_call` returns."""
        [row] = rows
        if count > 1:
            return cls(*row)
        message_id, outcome = row
        return cls([1], [message_id], None if outcome == "created" else [outcome])


@once_a_schema
def enqueue_clause(
    schema: str | None,
    *,
    alone: bool = False,
    refusing: bool = False,
) -> Clause:
    """``fq_enqueue``.

    Args:
        schema: Of the installation.
        alone: Of one message.
        refusing: It fails for an outcome that a caller must raise.
    """
    outcome = _refusing(schema, alone=alone) if refusing else "outcome"
    return call(
        schema,
        "fq_enqueue",
        # A row for each of many messages would cost the client as much as to encode it.
        ("message_id", f"{outcome} as outcome") if alone else (*_IN_ARRAYS, _all_or_each(outcome)),
        alone=_ARRAYS if alone else (),
        queue="text",
        **_MESSAGE_TYPES,
        policy="jsonb",
        on_duplicates="text[]",
        notify="boolean",
        hold="bigint[]",
        costs="integer[]",
        groups="uuid[]",
        unique_fors="bigint[]",
        from_ends="boolean[]",
        counts_members="boolean",
    )


def _refusing(schema: str | None, *, alone: bool) -> str:
    channel, on_duplicate = (
        argument(name, "text") if alone else f"({argument(name, 'text[]')})[ordinal]"
        for name in ("channels", "on_duplicates")
    )
    return (
        "case when outcome operator(pg_catalog.=) cast('full' as text)"
        " or (outcome operator(pg_catalog.=) cast('duplicate' as text)"
        f" and {on_duplicate} operator(pg_catalog.=) cast('raise' as text))"
        f" then {qualifier(schema)}fq_refuse(outcome, {argument('queue', 'text')}, {channel}, ordinal,"
        " array[message_id]) else outcome end"
    )


_IN_ARRAYS = ("pg_catalog.array_agg(ordinal) as ordinals", "pg_catalog.array_agg(message_id) as message_ids")


def _all_or_each(outcome: str) -> str:
    """The outcomes of messages; null: all were created."""
    return (
        "case when pg_catalog.bool_and(outcome operator(pg_catalog.=) cast('created' as text))"
        f" then cast(null as text[]) else pg_catalog.array_agg({outcome}) end as outcomes"
    )


def enqueue(
    connection: Connection,
    target: Target,
    messages: Sequence[EncodedMessage],
    *,
    policy: ChannelPolicy,
    notify: bool,
    lock: Iterable[int] | None = None,
) -> EnqueuedMessages:
    """Add messages to a queue, in one statement.

    Args:
        connection: In a transaction.
        target: The queue.
        messages: At least one.
        policy: For channels that are made now, if the queue has no configured one.
        notify: Whether waiting consumers may be woken.
        lock: Where messages are replaced: others of the queue that are locked with them, in one order.
    """
    found = enqueue_call(connection, target, messages, policy=policy, notify=notify, lock=lock)
    return EnqueuedMessages.of_rows(fetch_rows(connection, *found), len(messages))


def enqueue_call(
    connection: Connection,
    target: Target,
    messages: Sequence[EncodedMessage],
    *,
    policy: ChannelPolicy,
    notify: bool,
    lock: Iterable[int] | None = None,
    refusing: bool = False,
    counts_members: bool = False,
) -> Call:
    """The call of :func:`enqueue`.

    *refusing*: it fails for "full", and for "duplicate" where that is to raise, to be sent together with COMMIT.
    *counts_members*: those of groups that the transaction has made.
    """
    alone = len(messages) == 1
    rows = map(_row, messages)
    # Tuples, for a dict a message keeps the garbage collector busy.
    values = next(rows) if alone else map(list, zip(*rows, strict=True))
    parameters: dict[str, Any] = dict(zip(_ARRAYS, values, strict=True))
    if alone:
        parameters["groups"] = _text(parameters["groups"])
    else:
        groups = _shared(parameters["groups"])
        parameters["groups"] = None if groups == [None] else list(map(_text, groups))
        parameters["headers"] = _shared(parameters["headers"])
        for name in ("costs", "unique_fors", "from_ends"):
            if not any(parameters[name]):
                parameters[name] = None
    parameters["queue"] = target.queue
    parameters["policy"] = new_policy_json(policy)
    parameters["notify"] = may_notify(connection, notify)
    parameters["hold"] = None if lock is None else sorted(lock)
    doing = f"enqueue {len(messages)} messages to queue {target.queue!r}"
    parameters["counts_members"] = counts_members
    return Call(enqueue_clause(target.schema, alone=alone, refusing=refusing), parameters, doing)


def _shared(values: list[Any]) -> list[Any]:
    """One value for all messages, if they have the same object; else the value of each."""
    first = values[0]
    return [first] if all(value is first for value in values) else values


def _text(group_id: UUID | None) -> str | None:
    return None if group_id is None else str(group_id)


def _row(encoded: EncodedMessage) -> tuple[Any, ...]:
    """The element of a message in each of the function's arrays, in their order."""
    message = encoded.message
    return (
        message.channel,
        message.kind,
        Content(encoded.content),
        encoded.headers,
        None if message.delay is None else microseconds(message.delay),
        None if message.at is None else instant_microseconds(message.at),
        message.priority,
        message.key,
        encoded.max_attempts,
        message.on_duplicate,
        None if message.cost == 1 else message.cost,
        encoded.group_id,
        None if message.unique_for is None else microseconds(message.unique_for),
        message.unique_from == "completion",
    )


def message_parameters(encoded: EncodedMessage) -> dict[str, Any]:
    """The element of a message in each of the function's arrays, by name."""
    return dict(zip(_ARRAYS, _row(encoded), strict=True))


@once_a_schema
def max_backlog_clause(schema: str | None) -> Clause:
    """``fq_max_backlog``."""
    return call(schema, "fq_max_backlog", "fq_max_backlog as messages", queue="text", channel="text")


def max_backlog(connection: Connection, target: Target, channel: str) -> int | None:
    """Most undelivered messages that a channel may have; None: no bound, or there is no such channel."""
    [row] = fetch(
        connection,
        max_backlog_clause(target.schema),
        {"queue": target.queue, "channel": channel},
        f"read the policy of channel {channel!r} of queue {target.queue!r}",
    )
    messages: int | None = row.messages
    return messages
