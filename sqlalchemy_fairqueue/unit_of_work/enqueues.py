"""Enqueues of one queue, sent, and the outcome of each."""

from __future__ import annotations

from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.errors import ChannelFull, DuplicateMessage
from sqlalchemy_fairqueue.unit_of_work.operations import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.groups import Members
    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, ReceiptUpdate, Target
    from sqlalchemy_fairqueue.values import EnqueueOutcome


def enqueue(
    connection: Connection,
    target: Target,
    enqueues: Sequence[EnqueueMessage],
    later: Sequence[int] = (),
    cancelled: Mapping[int, int] = MappingProxyType({}),
    *,
    members: Members | None = None,
) -> list[ReceiptUpdate]:
    """Add messages to one queue, in one statement.

    Args:
        connection: In a transaction.
        target: The queue.
        enqueues: What to add.
        later: The queue's messages that the transaction settles or cancels afterwards. Where messages are replaced, all
            of them are locked in one order.
        cancelled: Of these the ones that it cancels, each with how many of *enqueues* were asked for before that.
        members: Gets the number of those that were created, by group.

    Raises:
        DuplicateMessage: A key stood already, and the enqueue said to raise. That message was not added. Or a message
            that it met is cancelled, as was asked before.
        ChannelFull: A channel is full, and its policy says to raise. That message was not added.
    """
    rows = _call(connection, target, enqueues, later).tuples(connection)
    outcomes = database.EnqueuedMessages.of_rows(rows, len(enqueues))
    for ordinal, message_id, outcome in _told(outcomes):
        enqueue = enqueues[ordinal - 1]
        if outcome == "full":
            channel = enqueue.message.channel
            doing = f"read the policy of channel {channel!r} of queue {target.queue!r}"
            raise _full(target, channel, target.call("fq_max_backlog", doing, channel=channel).value(connection))
        if outcome in {"duplicate", "replaced"}:
            holder = cast("int", message_id)
            is_cancelled = ordinal > cancelled.get(holder, len(enqueues))
            if is_cancelled or (outcome == "duplicate" and enqueue.message.on_duplicate == "raise"):
                raise _duplicate(enqueue, holder, is_cancelled=is_cancelled)
    if members is not None:
        # Those that were added together have the same object.
        created = (enqueues[ordinal - 1].group_id for ordinal, _, outcome in _told(outcomes) if outcome == "created")
        for _, same in groupby(created, key=id):
            if (group_id := next(same)) is not None:
                members.created[group_id] += 1 + sum(1 for _ in same)
    return _updates(enqueues, outcomes)


def enqueue_step(
    connection: Connection,
    target: Target,
    enqueues: Sequence[EnqueueMessage],
    later: Sequence[int] = (),
    *,
    counts_members: bool = False,
) -> Step:
    """As :func:`enqueue` without cancels, to be sent together with COMMIT.

    *counts_members*: those of groups that the transaction has made.
    """

    def updates(rows: Sequence[Any]) -> list[ReceiptUpdate]:
        return _updates(enqueues, database.EnqueuedMessages.of_rows(rows, len(enqueues)))

    def failure(refused: database.CommitRefused) -> Exception:
        enqueue = enqueues[cast("int", refused.ordinal) - 1]
        if refused.outcome == "full":
            return _full(target, enqueue.message.channel, refused.max_backlog)
        return _duplicate(enqueue, refused.message_ids[0])

    call = _call(connection, target, enqueues, later, refusing=True, counts_members=counts_members)
    return Step(call, updates, failure)


def _call(
    connection: Connection, target: Target, enqueues: Sequence[EnqueueMessage], later: Sequence[int], **how: bool
) -> database.Call:
    replacing = later and any(enqueue.message.on_duplicate == "replace" for enqueue in enqueues)
    return database.enqueue(
        connection,
        target,
        enqueues,
        policy=enqueues[0].policy,
        notify=all(enqueue.target.notify for enqueue in enqueues),
        lock=later if replacing else None,
        **how,
    )


def _told(outcomes: database.EnqueuedMessages) -> Iterable[tuple[int, int | None, EnqueueOutcome | Literal["full"]]]:
    """The ordinal, id and outcome of each message."""
    created: Sequence[EnqueueOutcome] = ["created"] * len(outcomes.ordinals)
    return zip(outcomes.ordinals, outcomes.message_ids, outcomes.outcomes or created, strict=True)


def _updates(enqueues: Sequence[EnqueueMessage], outcomes: database.EnqueuedMessages) -> list[ReceiptUpdate]:
    # One for all: an object a message is work for the garbage collector.
    def update() -> None:
        for ordinal, message_id, outcome in _told(outcomes):
            receipt = enqueues[ordinal - 1].receipt
            receipt.message_id = message_id
            receipt.created = outcome == "created"
            receipt.outcome = cast("EnqueueOutcome", outcome)

    return [update]


def _duplicate(enqueue: EnqueueMessage, holder: int, *, is_cancelled: bool = False) -> DuplicateMessage:
    return DuplicateMessage(enqueue.message.channel, cast("str", enqueue.message.key), holder, is_cancelled)


def _full(target: Target, channel: str, most: int | None) -> ChannelFull:
    bound = "" if most is None else f" of {most}"
    return ChannelFull(
        f"channel {channel!r} of queue {target.queue!r} has reached its max_backlog{bound} undelivered messages; "
        "try again when consumers have taken some, or configure the channel with another max_backlog or on_full='drop'",
        channel,
        most,
    )
