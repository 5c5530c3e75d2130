"""The enqueues of one queue and their groups: the statements, and the outcomes for the receipts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sqlalchemy_fairqueue.database.configuration import new_policy_json
from sqlalchemy_fairqueue.database.deliveries import find_holder
from sqlalchemy_fairqueue.database.messages import EnqueuedMessages, enqueue_call, followup_values
from sqlalchemy_fairqueue.errors import ChannelFull, DuplicateMessage, LeaseLost, MessageCancelled, UnknownGroup
from sqlalchemy_fairqueue.unit_of_work.operations import CANCELS, ENQUEUES, GROUPS, Step, notifies
from sqlalchemy_fairqueue.unit_of_work.settlements import message_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from sqlalchemy_fairqueue.database.calls import Call, CommitRefused, Target
    from sqlalchemy_fairqueue.database.messages import EncodedMessage, Membership
    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, ReceiptUpdate, Share
    from sqlalchemy_fairqueue.unit_of_work.settlements import Cancel
    from sqlalchemy_fairqueue.values.messages import Enqueue, EnqueueOutcome, Receipt
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy

_NONE: Mapping[int, int] = MappingProxyType({})
# attrgetter is called from C, which matters for many messages.
_membership = attrgetter("membership")


# Not frozen, unlike other values: creating it takes a third of the time.
@dataclass(slots=True, eq=False)
class EnqueueMessage:
    """An enqueue of a message.

    Attributes:
        content: The encoded payload.
        headers: JSON text.
        max_attempts: The message's own number or the queue's.
        policy: For a new channel, if the queue has no configured defaults.
        receipt: Receives the outcome.
        membership: The group of the message, or None.
    """

    phase: ClassVar[int] = ENQUEUES
    target: Target
    message: Enqueue
    content: bytes
    headers: str | None
    max_attempts: int
    policy: ChannelPolicy
    receipt: Receipt
    membership: Membership | None = None

    @property
    def group_id(self) -> UUID | None:
        return None if self.membership is None else self.membership.group_id


@dataclass(frozen=True, slots=True)
class MakeGroup:
    """The creation of a group.

    Attributes:
        then: The follow-up.
        on_failure: The follow-up if a member failed or was cancelled.
        policy: For new channels of these, if the queue has no configured defaults.
        sent: Called after the commit.
    """

    phase: ClassVar[int] = GROUPS
    target: Target
    group_id: UUID
    then: EncodedMessage | None
    on_failure: EncodedMessage | None
    policy: ChannelPolicy
    sent: ReceiptUpdate


class Members:
    """The groups of one queue that a transaction creates or adds members to.

    Attributes:
        adding: The messages whose handlers add members; they must not end before the transaction.
        join: Whether :meth:`send_joins` counts the members, since some groups were created elsewhere. Otherwise the
            server counts them during the enqueue.
        created: How many members were created for each membership.
    """

    __slots__ = ("_adders", "_makes", "_share", "adding", "created", "join")

    def __init__(self, share: Share, memberships: Collection[Membership]) -> None:
        self._share = share
        self._makes: list[MakeGroup] = share.phases.get(GROUPS, [])
        self._adders = {one.group_id: one.adder for one in memberships}
        self.adding = [one.adder.message_id for one in memberships if one.adder is not None]
        self.join = not self._adders.keys() <= {make.group_id for make in self._makes}
        self.created = dict.fromkeys(memberships, 0)

    def make_steps(self) -> list[Step]:
        """Return the steps that create the groups. They come before the members, and lock nothing."""
        steps: list[Step] = []
        target = self._share.target
        for make in self._makes:
            followups = [one for one in (make.then, make.on_failure) if one is not None]
            call = target.call(
                "fq_make_group",
                f"make group {make.group_id} of {target.named()}",
                group_id=str(make.group_id),
                on_failures=[one is make.on_failure for one in followups] or None,
                policy=new_policy_json(make.policy),
                **followup_values(followups),
            )
            steps.append(Step(call, partial(_returned, [make.sent])))
            if not self.join and make.group_id not in self._adders:
                steps.append(Step(self._join(make.group_id)))
        return steps

    def send_joins(self) -> None:
        """Count the created members, unless the server has.

        Raises:
            UnknownGroup: Another transaction creates the group, or the adding message is no member.
            LeaseLost: The adding delivery is lost.
            MessageCancelled: The adding message was cancelled.
        """
        if self.join:
            for group_id in dict.fromkeys([*(make.group_id for make in self._makes), *self._adders]):
                self._send_join(group_id)

    def _join(self, group_id: UUID) -> Call:
        """Return the call that counts created members; it returns "joined", "lost", "cancelled" or "stranger"."""
        adder = self._adders.get(group_id)
        return self._share.target.call(
            "fq_join_group",
            f"join group {group_id}",
            group_id=str(group_id),
            added=sum(count for one, count in self.created.items() if one.group_id == group_id),
            message_id=None if adder is None else adder.message_id,
            lease_id=None if adder is None else adder.lease.id,
            deliveries=None if adder is None else adder.deliveries,
        )

    def _send_join(self, group_id: UUID) -> None:
        connection, target = self._share.link.connection, self._share.target
        adder = self._adders.get(group_id)
        outcome = self._join(group_id).value(connection)
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
        holder = find_holder(connection, target, adder.message_id)
        raise LeaseLost((adder.message_id,), adder.lease.id, adder.lease.expires_at, holder)


def members_of(share: Share) -> Members | None:
    """Return the groups of a share; None, as nearly always, if there are none."""
    memberships = dict.fromkeys(map(_membership, share.phases.get(ENQUEUES, ())))
    memberships.pop(None, None)
    return Members(share, memberships) if memberships or GROUPS in share.phases else None


def enqueue_steps(
    share: Share,
    members: Members | None,
    leased: Collection[int] = (),
    cancelled: Mapping[int, int] = _NONE,
    *,
    refusing: bool = False,
) -> list[Step]:
    """Return the steps that create groups and add messages.

    Args:
        leased: Other messages of the queue that the transaction locks afterwards; those that it settles or cancels are
            known. If messages are replaced, all are locked in one order.
        cancelled: Each message that the transaction cancels, with the number of enqueues recorded before the cancel.
        refusing: Whether the statement travels with the COMMIT, so that it must fail itself for an outcome that raises.
            There are no cancels then.

    The steps raise DuplicateMessage and ChannelFull as ``Queue.enqueue`` does. DuplicateMessage also comes from an
    enqueue that meets a message cancelled before it in the transaction.
    """
    steps = [] if members is None else members.make_steps()
    enqueues: list[EnqueueMessage] | None = share.phases.get(ENQUEUES)
    if not enqueues:
        return steps
    lock = [*leased, *message_ids(share)] if leased or len(share.phases) > 1 else []
    replacing = lock and any(
        enqueue.message.on_duplicate == "replace" or enqueue.message.coalesce for enqueue in enqueues
    )
    call = enqueue_call(
        share.target,
        enqueues,
        policy=enqueues[0].policy,
        notify=all(map(notifies, enqueues)),
        lock=lock if replacing else None,
        refusing=refusing,
        counts_members=members is not None and bool(members.created) and not members.join,
    )

    def finish(rows: Sequence[Any]) -> list[ReceiptUpdate]:
        added = EnqueuedMessages.of_rows(rows, len(enqueues))
        if added.outcomes.count("created") < len(enqueues):
            _check(share, enqueues, added, cancelled)
        if members is not None:
            for ordinal, _, outcome in zip(*added, strict=True):
                if outcome == "created" and (membership := enqueues[ordinal - 1].membership) is not None:
                    members.created[membership] += 1
        # One update for all messages: an object for each would burden the garbage collector.
        return [partial(_fill, enqueues, added)]

    def failure(refused: CommitRefused) -> Exception:
        enqueue = enqueues[cast("int", refused.ordinal) - 1]
        if refused.outcome == "full":
            return _full(share.target, enqueue.message.channel, refused.max_backlog)
        return _duplicate(enqueue, refused.message_ids[0])

    return [*steps, Step(call, finish, failure)]


def _check(
    share: Share,
    enqueues: Sequence[EnqueueMessage],
    added: EnqueuedMessages,
    cancelled: Mapping[int, int],
) -> None:
    target = share.target
    for ordinal, message_id, outcome in zip(*added, strict=True):
        enqueue = enqueues[ordinal - 1]
        if outcome == "full":
            channel = enqueue.message.channel
            doing = f"read the policy of channel {channel!r} of queue {target.queue!r}"
            call = target.call("fq_max_backlog", doing, channel=channel)
            raise _full(target, channel, call.value(share.link.connection))
        if outcome in {"duplicate", "replaced"}:
            holder = cast("int", message_id)
            is_cancelled = ordinal > cancelled.get(holder, len(enqueues))
            if is_cancelled or (outcome == "duplicate" and enqueue.message.on_duplicate == "raise"):
                raise _duplicate(enqueue, holder, is_cancelled=is_cancelled)


def _fill(enqueues: Sequence[EnqueueMessage], added: EnqueuedMessages) -> None:
    for ordinal, message_id, outcome in zip(*added, strict=True):
        receipt = enqueues[ordinal - 1].receipt
        receipt.message_id = message_id
        receipt.created = outcome == "created"
        receipt.outcome = cast("EnqueueOutcome", outcome)


def cancelled_messages(share: Share, asked: Iterable[Operation]) -> dict[int, int]:
    """Return each message that is cancelled, with the number of enqueues recorded before its cancel."""
    found: dict[int, int] = {}
    if CANCELS not in share.phases:
        return found
    before = 0
    enqueues, cancels = (set(map(id, share.phases.get(phase, ()))) for phase in (ENQUEUES, CANCELS))
    for operation in asked:
        if id(operation) in enqueues:
            before += 1
        elif id(operation) in cancels:
            for message_id in cast("Cancel", operation).message_ids:
                found.setdefault(message_id, before)
    return found


def _returned(updates: list[ReceiptUpdate], rows: Sequence[Any]) -> list[ReceiptUpdate]:  # noqa: ARG001 - as for Step
    return updates


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
