"""Counts of the groups that a transaction makes, and of the members that it adds to them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.errors import LeaseLost, MessageCancelled, UnknownGroup
from sqlalchemy_fairqueue.unit_of_work.operations import Step
from sqlalchemy_fairqueue.unit_of_work.phases import by_queue
from sqlalchemy_fairqueue.unit_of_work.settlement import token_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, MakeGroup, ReceiptUpdate, Target
    from sqlalchemy_fairqueue.unit_of_work.phases import ConnectedTarget
    from sqlalchemy_fairqueue.values import Delivery


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


def members_by_target(
    enqueues: Iterable[tuple[Connection, EnqueueMessage]],
    groups: Iterable[tuple[Connection, MakeGroup]],
    leased: dict[ConnectedTarget, list[int]],
) -> dict[ConnectedTarget, Members]:
    """The work of a transaction on groups, by queue in lock order.

    The members that add members are put into *leased*: they are locked with the messages that are settled, so that none
    of them ends before the transaction does.
    """
    found: dict[ConnectedTarget, Members] = {}
    for connection, target, makes in by_queue(groups):
        found.setdefault((connection, target), Members()).makes += makes
    before = adder = sent_to = where = None
    for connection, one in enqueues:
        if (group_id := one.group_id) is None:
            continue
        # Those that were added together have the same objects, which are compared at less cost than they are hashed.
        if group_id is before and one.adder is adder and one.target is sent_to and connection is where:
            continue
        before, adder, sent_to, where = group_id, one.adder, one.target, connection
        to = connection, one.target
        found.setdefault(to, Members()).adders[group_id] = one.adder
        if one.adder is not None:
            leased.setdefault(to, []).append(one.adder.message_id)
    return found
