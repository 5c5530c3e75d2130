"""Calls that add messages, find messages, groups and dead letters, and read how messages ended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import UUID

from sqlalchemy_fairqueue.database.calls import READABLE, Call, Row, Shape, Target, argument, call, clause_of, read
from sqlalchemy_fairqueue.sql.files import signature
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.messages import Delivery, Enqueue, EnqueueOutcome, GroupStatus, MessageName
from sqlalchemy_fairqueue.values.reports import (
    AttemptDetails,
    DeadLetterGroup,
    MessageDetails,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.values.reports import MessageState


ResultState = Literal["completed", "unkept", "cancelled", "expired", "pending", "failed", "gone", "unknown"]
_ONE_NAMED = Shape(named="message_id")
# The place before all undelivered messages of a channel.
_UNDELIVERED: Row = {"step": 2, "at": 1 - 2**63, "message_id": 0}
_FIRST_NAMED = Shape(named="ids", alone=("ids",), readable=True)
# Arrays, since a row for each message would cost the client as much as encoding it.
_IN_ARRAYS = ("pg_catalog.array_agg(ordinal) as ordinals", "pg_catalog.array_agg(message_id) as message_ids")


@dataclass(slots=True, eq=False)
class Membership:
    """The group that messages join. *adder* is the delivery of the member that adds them; None if the group is new."""

    group_id: UUID
    adder: Delivery | None
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.text = str(self.group_id)


# Optional arrays: fq_enqueue gets null in place of an array whose elements all have the value given here.
_OPTIONAL = {**dict.fromkeys(("ordering_keys", "costs", "groups", "unique_fors", "from_ends")), "on_duplicates": "skip"}


# Not frozen, unlike other values: creating it takes a third of the time.
@dataclass(slots=True, eq=False)
class EncodedMessage:
    """A message to enqueue: encoded, with its headers as JSON, and with its own *max_attempts* or the queue's."""

    message: Enqueue
    content: bytes
    headers: str | None
    max_attempts: int
    membership: Membership | None


class EnqueuedMessages(NamedTuple):
    """The outcomes of an enqueue. Each list has one element for each message, in the order of the database's answer.

    Attributes:
        ordinals: The position of the message in the call, from 1.
        message_ids: The id of the new message. If the outcome is "duplicate", "replaced" or "coalesced", the id of the
            older message that has the key or the ordering key. None if the channel was full.
        outcomes: "full" if the channel was full and its policy says "raise". All other outcomes are those of a receipt.
    """

    ordinals: list[int]
    message_ids: list[int | None]
    outcomes: list[EnqueueOutcome | Literal["full"]]

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Any]], count: int) -> EnqueuedMessages:
        [row] = rows
        if count == 1:
            message_id, outcome = row
            return cls([1], [message_id], [outcome])
        ordinals, message_ids, outcomes = row
        # Null means that all were created.
        return cls(ordinals, message_ids, outcomes or ["created"] * len(ordinals))


@dataclass(frozen=True, slots=True)
class FoundResult:
    """What is known about the end of a message.

    Attributes:
        state: See ``fq_results``.
        content: The encoded result; None if the handler returned None, or if no result is kept.
        reason: Why no result of a completed message is kept, or why the message became a dead letter.
    """

    state: ResultState
    channel: str | None = None
    kind: str | None = None
    content: bytes | None = field(default=None, repr=False)
    reason: str | None = None
    error: str | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None


@cache
def _enqueuing(*, alone: bool, refusing: bool) -> Shape:
    outcome = "outcome"
    if refusing:
        channel, on_duplicate = (
            argument(name, "text") if alone else f"({argument(name, 'text[]')})[ordinal]"
            for name in ("channels", "on_duplicates")
        )
        outcome = (
            "case when outcome operator(pg_catalog.=) cast('full' as text)"
            " or (outcome operator(pg_catalog.=) cast('duplicate' as text)"
            f" and {on_duplicate} operator(pg_catalog.=) cast('raise' as text))"
            f" then fairqueue.fq_refuse(outcome, {argument('queue', 'text')}, {channel}, ordinal, array[message_id],"
            " true) else outcome end"
        )
    if alone:
        return Shape(("message_id", f"{outcome} as outcome"), alone=_arrays(()).keys())
    # Null means that all were created.
    outcomes = (
        "case when pg_catalog.bool_and(outcome operator(pg_catalog.=) cast('created' as text))"
        f" then cast(null as text[]) else pg_catalog.array_agg({outcome}) end as outcomes"
    )
    return Shape((*_IN_ARRAYS, outcomes))


def enqueue_call(
    target: Target,
    messages: Sequence[EncodedMessage],
    *,
    notify: bool,
    lock: Iterable[int] | None = None,
    refusing: bool = False,
    counts_members: bool = False,
) -> Call:
    """Return the call that adds messages, at least one, to a queue; :class:`EnqueuedMessages` reads its rows.

    Args:
        lock: Ids of messages that the transaction will lock later, or None. If the call locks messages to replace them,
            it locks those and the messages of *lock* together, in the order of their ids.
        refusing: Whether the call is sent with COMMIT. The call then fails for outcomes for which Python would raise.
        counts_members: Whether the call counts the messages as members, because the transaction created their groups.
    """
    alone = len(messages) == 1
    if alone:
        arrays = _scalars(messages[0])
    else:
        arrays = _arrays(messages)
        for name, usual in _OPTIONAL.items():
            if arrays[name].count(usual) == len(messages):
                arrays[name] = None
        for name in ("headers", "groups"):
            arrays[name] = _shared(arrays[name])
    values = {
        "queue": target.queue,
        "policy": target.policy,
        "notify": notify,
        "hold": None if lock is None else sorted(lock),
        "counts_members": counts_members,
        **arrays,
    }
    # Not call(), since all parameters are here, and instants and durations are converted.
    clause = clause_of(target.schema, "fq_enqueue", _enqueuing(alone=alone, refusing=refusing))
    return Call(clause, values, f"enqueue {len(messages)} messages to")


def _shared(values: Sequence[Any] | None) -> Sequence[Any] | None:
    # fq_enqueue applies the value of an array of one element to all messages.
    return values[:1] if values is not None and values.count(values[0]) == len(values) else values


def _scalars(one: EncodedMessage) -> dict[str, Any]:
    """Return the elements of :func:`_arrays` for one message, in a third of the time."""
    message = one.message
    return {
        "channels": message.channel,
        "kinds": message.kind,
        "contents": one.content,
        "headers": one.headers,
        "delays": None if message.delay is None else microseconds(message.delay),
        "ats": None if message.at is None else instant_microseconds(message.at),
        "priorities": message.priority,
        "keys": message.key,
        "max_attempts": one.max_attempts,
        "ordering_keys": message.ordering_key,
        "on_duplicates": "coalesce" if message.coalesce else message.on_duplicate,
        "costs": None if message.cost == 1 else message.cost,
        "groups": None if one.membership is None else one.membership.text,
        "unique_fors": None if message.unique_for is None else microseconds(message.unique_for),
        "from_ends": True if message.unique_from == "completion" else None,
    }


def _arrays(messages: Sequence[EncodedMessage]) -> dict[str, Any]:
    # Not made of the _scalars of each message: an enqueue of 1,000 messages would take the client 1.2 times as long.
    enqueues = [one.message for one in messages]
    return {
        "channels": [one.channel for one in enqueues],
        "kinds": [one.kind for one in enqueues],
        "contents": [one.content for one in messages],
        "headers": [one.headers for one in messages],
        "delays": [None if one.delay is None else microseconds(one.delay) for one in enqueues],
        "ats": [None if one.at is None else instant_microseconds(one.at) for one in enqueues],
        "priorities": [one.priority for one in enqueues],
        "keys": [one.key for one in enqueues],
        "max_attempts": [one.max_attempts for one in messages],
        "ordering_keys": [one.ordering_key for one in enqueues],
        "on_duplicates": ["coalesce" if one.coalesce else one.on_duplicate for one in enqueues],
        "costs": [None if one.cost == 1 else one.cost for one in enqueues],
        "groups": [None if one.membership is None else one.membership.text for one in messages],
        "unique_fors": [None if one.unique_for is None else microseconds(one.unique_for) for one in enqueues],
        "from_ends": [True if one.unique_from == "completion" else None for one in enqueues],
    }


def followup_values(messages: Sequence[EncodedMessage]) -> dict[str, Any]:
    # Not an empty array, since no driver writes one of contents.
    kept = signature("fq_make_group").parameters
    return {name: values or None for name, values in _arrays(messages).items() if name in kept}


def names_values(*names: MessageName) -> dict[str, Any]:
    """Return *names* as parameters of ``fq_find_named``; a call with :attr:`Shape.named` takes the same parameters."""
    channels, keys, ordering_keys = map(list, zip(*names, strict=True))
    return {"channels": channels, "keys": keys, "ordering_keys": ordering_keys}


def make_due(target: Target, message: int | MessageName) -> Call:
    function, doing, notify = "fq_make_due", "make a message due in", target.notify
    if isinstance(message, MessageName):
        return target.call(function, doing, _ONE_NAMED, notify=notify, **names_values(message))
    return target.call(function, doing, message_id=message, notify=notify)


def find_messages(target: Target, *, limit: int, scan: int, **which: str | int | None) -> Call:
    asked = dict.fromkeys(("channel", "state", "kind", "step", "at", "message_id")) | which
    return target.call("fq_find_messages", "find messages of", limit=limit, scan=scan, **asked)


def read_messages(
    connection: Connection,
    target: Target,
    wanted: MessageName | Sequence[int],
    *,
    content_bytes: int = 65_536,
    ahead: int = 0,
) -> list[MessageDetails]:
    """Return unsettled messages by ids, in the order of *wanted*, or the first message with a key or ordering key.

    For each message, count up to *ahead* messages before it in its channel.
    """
    which: dict[str, Any] = {"bytes": content_bytes, "ahead": ahead}
    function, doing, shape = "fq_message_details", "read messages of", READABLE
    if isinstance(wanted, MessageName):
        shape, which = _FIRST_NAMED, which | names_values(wanted)
    else:
        which["ids"] = list(wanted)
    return read(connection, target.schema, function, doing, _details, shape, queue=target.queue, **which)


def read_channel_messages(
    connection: Connection, target: Target, channel: str, *, limit: int, content_bytes: int
) -> list[MessageDetails]:
    """Return up to *limit* leased messages of a channel, then up to *limit* others in the order of delivery."""
    parts: tuple[Row, ...] = {"state": "leased"}, _UNDELIVERED
    finds = [find_messages(target, channel=channel, limit=limit, scan=limit, **part) for part in parts]
    ids = [row.message_id for find in finds for row in find.rows(connection) if row.message_id is not None]
    return read_messages(connection, target, ids, content_bytes=content_bytes)


def _details(*, channel: str | None, content: bytes | None, dequeue_at: datetime, **row: Any) -> MessageDetails:
    return MessageDetails(channel=channel or "", content=content or b"", due_at=dequeue_at, **row)


def read_attempts(
    connection: Connection, target: Target, *, limit: int, scan: int, chars: int = 10_000, **which: str | int | None
) -> tuple[list[AttemptDetails], str | None]:
    """Return a page of ended attempts, the last first, and where the next page begins; None if there is no next one."""
    asked = dict.fromkeys(("message_id", "channel", "kind", "outcome", "xid", "id")) | which
    page: Row = {"limit": limit, "scan": scan, "chars": chars}
    rows = target.read(connection, "fq_recent_attempts", "read the last attempts of", Row, **page, **asked)
    ends = [f"{row.pop('recorded_xid')}.{row.pop('history_id')}" for row in rows]
    attempts = [AttemptDetails(**row) for row in rows if row["message_id"] is not None]
    return attempts, None if len(attempts) == len(rows) else ends[-1]


def read_message_attempts(
    connection: Connection, target: Target, message_id: int, *, limit: int = 100, chars: int = 10_000
) -> list[AttemptDetails]:
    attempts, _ = read_attempts(connection, target, message_id=message_id, limit=limit, scan=limit, chars=chars)
    return attempts[::-1]


def read_results(connection: Connection, target: Target, message_ids: Sequence[int]) -> list[FoundResult]:
    """Return how messages ended, in the order of *message_ids*."""

    def found(*, message_id: int, **row: Any) -> FoundResult:  # noqa: ARG001 - the caller knows it
        return FoundResult(**row)

    return target.read(connection, "fq_results", "read results of", found, ids=list(message_ids))


def record_audit(
    connection: Connection,
    schema: str | None,
    queue: str | None,
    *,
    what: str,
    details: Mapping[str, object] | None,
    **which: str | Sequence[int] | None,
) -> None:
    """Record what an operator did; *which* are the other parameters of ``fq_record_audit``."""
    doing = f"record {what!r:.80} for" if queue else f"record {what!r:.80}"
    text = json.dumps(details, default=str) if details else None
    call(schema, "fq_record_audit", doing, queue=queue, what=what, details=text, **which).rows(connection)


class Folded(NamedTuple):
    """How many notes a fold counted, how many groups it tried to finish, even in vain, and whether more may be left."""

    folded: int
    finished: int
    more: bool


class Member(NamedTuple):
    """A group's member that has not ended."""

    message_id: int
    channel: str
    state: MessageState


def read_groups(
    connection: Connection,
    target: Target,
    group_id: UUID | None = None,
    *,
    is_open: bool | None = None,
    before: GroupStatus | None = None,
    limit: int = 1000,
) -> list[GroupStatus]:
    """Return up to *limit* groups of a queue, the newest first. If *group_id* is given, return only that group.

    *is_open*: True for open groups only, False for finished ones only. *before* is the last group of the previous page.
    """
    doing = "list the groups of" if group_id is None else f"read group {group_id} of"
    before_at, before_id = (None, None) if before is None else (before.created_at, str(before.id))
    page = {"open": is_open, "before_at": before_at, "before_id": before_id, "limit": limit}
    return target.read(connection, "fq_groups", doing, _status, group_id=group_id and str(group_id), **page)


def _status(*, group_id: UUID | str, added: int, **row: Any) -> GroupStatus:
    pending = max(added - row["done"] - row["failed"] - row["cancelled"], 0)
    return GroupStatus(id=UUID(str(group_id)), total=added, pending=pending, **row)


def read_group_members(connection: Connection, target: Target, group_id: UUID, *, limit: int) -> list[Member]:
    """Return up to *limit* members of a group that have not ended, sorted by id. If more exist, any may be left out."""
    doing = f"list the members of group {group_id} of"
    return sorted(target.read(connection, "fq_group_members", doing, Member, group_id=str(group_id), limit=limit))


def fold_groups(connection: Connection, schema: str | None, *, limit: int, groups: int, notify: bool) -> Folded | None:
    """Fold up to *limit* notes. If no note is left, finish up to *groups* groups whose members have all ended.

    Return None if another transaction is folding. Call this in a transaction of its own.
    """
    found = call(schema, "fq_fold_groups", "finish groups", limit=limit, groups=groups, notify=notify)
    return next(map(Folded._make, found.rows(connection)), None)


def read_dead_letter_groups(connection: Connection, target: Target, *, limit: int, ids: int) -> list[DeadLetterGroup]:
    """Group the newest *limit* dead letters by kind, reason and error, largest first, with up to *ids* ids each."""
    doing = "read the dead letters of"
    return target.read(connection, "fq_dead_letter_groups", doing, DeadLetterGroup, limit=limit, ids=ids)
