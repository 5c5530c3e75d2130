"""Enqueues of one queue, sent, the outcome of each, and the groups that they belong to."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.errors import ChannelFull, DuplicateMessage, LeaseLost, MessageCancelled, UnknownGroup
from sqlalchemy_fairqueue.unit_of_work.operations import Step
from sqlalchemy_fairqueue.unit_of_work.settlement import token_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, MakeGroup, ReceiptUpdate, Target
    from sqlalchemy_fairqueue.unit_of_work.work import Phases, Where
    from sqlalchemy_fairqueue.values import Delivery, EnqueueOutcome


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


class Members:
    """The groups of one queue that a transaction makes, and the members that it adds to these and to others.

    Attributes:
        makes: The groups that it makes.
        adders: The deliveries whose handlers add members, by group; None: the transaction makes the group.
        created: How many members were created, by group.
    """

    def __init__(self) -> None:
        self.makes: list[MakeGroup] = []
        self.adders: dict[UUID, Delivery | None] = {}
        self.created: Counter[UUID] = Counter()

    def count(self, connection: Connection, target: Target) -> list[ReceiptUpdate]:
        """Make the groups, and count what was created.

        Raises:
            UnknownGroup: A group was made by another transaction, or the message that adds is none of its members.
            LeaseLost: The delivery of the message that adds is not its holder's any more.
            MessageCancelled: The message that adds was cancelled.
        """
        for make in self.makes:
            _make(target, make).rows(connection)
        for group_id in dict.fromkeys([*(make.group_id for make in self.makes), *self.adders]):
            self._join(connection, target, group_id)
        return [make.sent for make in self.makes]

    def make_steps(self, target: Target) -> list[Step]:
        """The steps that make the groups, to be sent together with COMMIT.

        They come before the members, which are counted when they are enqueued.
        """
        steps: list[Step] = []
        for make in self.makes:
            steps.append(Step(_make(target, make), _updates_of(make)))
            if make.group_id not in self.adders:
                steps.append(Step(database.join_group(target, make.group_id, 0)))
        return steps

    def _join(self, connection: Connection, target: Target, group_id: UUID) -> None:
        adder = self.adders.get(group_id)
        token = None if adder is None else token_of(adder)
        outcome = database.join_group(target, group_id, self.created[group_id], token).value(connection)
        if outcome == "stranger":
            raise UnknownGroup(
                f"group {group_id} of queue {target.queue!r} takes no members from this transaction: only the "
                "transaction that makes it adds some, and the handlers of its members; enqueue within its block",
                target.queue,
                group_id,
            )
        if adder is None or outcome == "joined":
            return
        if outcome == "cancelled":
            raise MessageCancelled(adder.message_id)
        holder = database.holder(connection, target, adder.message_id)
        raise LeaseLost((adder.message_id,), adder.lease.id, adder.lease.expires_at, holder)


def _make(target: Target, make: MakeGroup) -> database.Call:
    return database.make_group(target, make.group_id, then=make.then, on_failure=make.on_failure, policy=make.policy)


def _updates_of(make: MakeGroup) -> Callable[[Sequence[Any]], list[ReceiptUpdate]]:
    return lambda _rows: [make.sent]


def members_by_target(phases: Phases, leased: dict[Where, list[int]]) -> dict[Where, Members]:
    """The work of a transaction on groups, by queue in lock order.

    The members that add members are put into *leased*: they are locked with the messages that are settled, so that none
    of them ends before the transaction does.
    """
    found = {}
    for where, makes in phases.groups:
        found[where] = Members()
        found[where].makes += makes
    for where, enqueues in phases.enqueues:
        before = adder = None
        for one in enqueues:
            # Those that were added together have the same objects, which are compared at less cost than hashed.
            if (one.group_id is before and one.adder is adder) or one.group_id is None:
                continue
            before, adder = one.group_id, one.adder
            found.setdefault(where, Members()).adders[before] = adder
            if adder is not None:
                leased.setdefault(where, []).append(adder.message_id)
    return found
