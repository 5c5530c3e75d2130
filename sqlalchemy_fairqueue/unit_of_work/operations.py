"""The operations of a transaction (enqueues, groups, settlements, cancels), and the statements that perform them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast

from sqlalchemy_fairqueue.database.calls import ALL, Call, CommitRefused, Link, Shape, Target, can_notify
from sqlalchemy_fairqueue.database.deliveries import (
    EncodedResult,
    find_holder,
    lock_deliveries,
    refusal,
    settlement,
    token_of,
)
from sqlalchemy_fairqueue.database.messages import (
    EncodedMessage,
    EnqueuedMessages,
    enqueue_call,
    followup_values,
    names_values,
)
from sqlalchemy_fairqueue.errors import ChannelFull, DuplicateMessage, LeaseLost, MessageCancelled, UnknownGroup

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.messages import Membership
    from sqlalchemy_fairqueue.values.messages import (
        CancelOutcome,
        CancelReceipt,
        Delivery,
        EnqueueOutcome,
        MessageName,
        Receipt,
    )

GROUPS, ENQUEUES, SETTINGS, CHANGES, REMOVALS, SETTLEMENTS, CANCELS, SCHEDULES = range(8)
"""The phases of a transaction's queue work, in the order in which they are sent.

SETTINGS change queues, plans and shared limits, and lock only the rows of these. CHANGES change channels and the limits
of queues. REMOVALS remove plans and shared limits, which nothing may use by then.
"""

notifies = attrgetter("target.notify")
"""Return whether the transaction may wake waiting consumers for an operation."""

ReceiptUpdate = Callable[[], None]
"""Fills in the outcome of an operation; to be called once the outcome is certain."""


class Operation(Protocol):
    """An operation on a queue within a transaction."""

    @property
    def target(self) -> Target: ...

    @property
    def phase(self) -> int: ...


@dataclass(slots=True, eq=False)
class Share:
    """The operations of one queue on one connection, by phase and in the order of the calls."""

    link: Link
    target: Target
    phases: defaultdict[int, list[Any]] = field(default_factory=partial(defaultdict, list))

    def lock_key(self) -> tuple[str, str, str]:
        """Return the place of the queue in the lock order, among all queues of all databases."""
        return self.target.schema or "", self.target.queue, self.link.connection.engine.url.render_as_string()


class Step(NamedTuple):
    """A statement, what to do with its rows, and what to raise if it was sent together with the COMMIT and failed."""

    call: Call
    finish: Callable[[Sequence[Any]], list[ReceiptUpdate]] = lambda _: []
    failure: Callable[[CommitRefused], Exception] = lambda refused: refused


def run(connection: Connection, steps: Sequence[Step]) -> list[ReceiptUpdate]:
    answers = [step.call.tuples(connection) for step in steps]
    return [update for step, rows in zip(steps, answers, strict=True) for update in step.finish(rows)]


_NAMED = Shape(named="ids")
# The outcome of a cancel with several messages is the first of these that occurs, or "missing" if none does.
_CANCELLED: tuple[CancelOutcome, ...] = ("leased", "cancelled")


class Verb(Enum):
    """The ways to settle a delivery."""

    COMPLETE = "complete"
    RETRY = "retry"
    RELEASE = "release"
    BURY = "bury"


# Not frozen, unlike other values: creating it takes a third of the time.
@dataclass(slots=True, eq=False)
class Settle:
    """The settlement of a delivery.

    *cost* is the actual cost; None leaves the cost as it was charged. In a queue that is fair by seconds, a worker can
    charge while the handler runs. If it did, *charged* is the charge so far in milliseconds; otherwise None.
    """

    phase: ClassVar[int] = SETTLEMENTS
    target: Target
    verb: Verb
    delivery: Delivery
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None
    cost: int | None = None
    charged: int | None = None
    result: EncodedResult | None = None


@dataclass(slots=True, eq=False)
class Cancel:
    """The cancel of a message by its id, or of messages by their key or ordering key."""

    phase: ClassVar[int] = CANCELS
    target: Target
    receipt: CancelReceipt
    wanted: int | MessageName
    found: list[int] = field(default_factory=list)
    """The ids that :func:`find_named` found by name; empty if the statement of the cancel finds them itself."""

    @property
    def message_ids(self) -> list[int]:
        return [self.wanted] if isinstance(self.wanted, int) else self.found


def find_named(share: Share) -> None:
    """Fill :attr:`Cancel.found` of cancels by name. Call this before enqueues add messages with the same names."""
    named = [one for one in share.phases[CANCELS] if not isinstance(one.wanted, int)]
    if not named:
        return
    find = share.target.call("fq_find_named", "find messages of", **names_values(*(one.wanted for one in named)))
    for message_id, ordinal in find.rows(share.link.connection):
        named[ordinal - 1].found.append(message_id)


def message_ids(share: Share) -> list[int]:
    settled = [one.delivery.message_id for one in share.phases.get(SETTLEMENTS, ())]
    return settled + [message_id for one in share.phases.get(CANCELS, ()) for message_id in one.message_ids]


def lock_messages(share: Share, ids: Iterable[int]) -> None:
    """Lock messages in the order of their ids, whoever holds them."""
    ordered = sorted(set(ids))
    share.target.call("fq_lock_messages", f"lock {len(ordered)} messages of", ids=ordered).rows(share.link.connection)


def settle_and_cancel(share: Share, *, alone: bool) -> list[ReceiptUpdate]:
    """Lock messages in the order of their ids, then settle and cancel them. A lost delivery raises LeaseLost.

    Set *alone* for the only operation of a transaction. A cancel by name then needs only one statement.
    """
    connection, target, cancels = share.link.connection, share.target, share.phases.get(CANCELS)
    if not cancels:
        return run(connection, settle_steps(share))
    updates: list[ReceiptUpdate] = []
    if SETTLEMENTS in share.phases:
        lock_messages(share, message_ids(share))
        updates = run(connection, settle_steps(share))
    shape, which = ALL, {"ids": sorted({message_id for one in cancels for message_id in one.message_ids})}
    if alone and not isinstance(cancels[0].wanted, int):
        shape, which = _NAMED, names_values(cancels[0].wanted)
    call = target.call("fq_cancel", "cancel messages of", shape, notify=all(map(notifies, cancels)), **which)
    outcomes = dict(map(tuple, call.rows(connection)))
    if alone:
        return [partial(_fill_cancel, cancels[0].receipt, outcomes)]
    return updates + [
        partial(_fill_cancel, one.receipt, {each: outcomes[each] for each in one.message_ids}) for one in cancels
    ]


def _fill_cancel(receipt: CancelReceipt, outcomes: dict[int, CancelOutcome]) -> None:
    receipt.outcomes = outcomes
    receipt.outcome = next((one for one in _CANCELLED if one in outcomes.values()), "missing")


def settle_steps(share: Share, *, refusing: bool = False) -> list[Step]:
    """Return the steps that settle the deliveries of a queue. They raise LeaseLost if a delivery is lost.

    *refusing* is for steps that are sent together with the COMMIT: a statement then fails if a delivery is lost.
    """
    by_verb: dict[Verb, list[Settle]] = {}
    for one in share.phases.get(SETTLEMENTS, ()):
        by_verb.setdefault(one.verb, []).append(one)
    steps: list[Step] = []
    if len(by_verb) > 1 and CANCELS not in share.phases:
        tokens = sorted(token_of(one.delivery) for same in by_verb.values() for one in same)
        steps.append(Step(lock_deliveries(share.target, tokens)))
    for verb in Verb if by_verb else ():
        if verb in by_verb:
            steps += _verb_steps(share.link.connection, share.target, verb, by_verb[verb], refusing=refusing)
    return steps


def settle(connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle]) -> None:
    """Settle deliveries by one verb. If some are lost, raise LeaseLost; others are settled if the caller commits."""
    run(connection, _verb_steps(connection, target, verb, settles))


def _verb_steps(
    connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle], *, refusing: bool = False
) -> list[Step]:
    # Plain tuples, since Tokens take four times as long. If a delivery is settled twice, the first settlement counts.
    once: dict[tuple[int, str, int, int], Settle] = {}
    for one in reversed(settles):
        delivery = one.delivery
        once[delivery.message_id, delivery.row_id, delivery.lease.id, delivery.deliveries] = one
    tokens = sorted(once)
    ordered = [once[token] for token in tokens]
    how: dict[str, Any] = {}
    if verb is not Verb.COMPLETE or any(one.delivery.keeps_result for one in ordered):
        how = {
            "delays": [one.delay for one in ordered],
            "errors": [one.error for one in ordered],
            "reasons": [one.reason for one in ordered],
            "results": [one.result or EncodedResult() if one.delivery.keeps_result else None for one in ordered],
            "notify": all(map(notifies, ordered)),
        }
    costs, charged = [one.cost for one in ordered], [one.charged for one in ordered]
    call = settlement(target, verb.value, tokens, costs=costs, charged=charged, refusing=refusing, **how)

    def finish(rows: Sequence[Any]) -> list[ReceiptUpdate]:
        if lost := sorted({message_id for message_id, outcome in rows if outcome == "lost"}):
            raise _lost(ordered, lost, find_holder(connection, target, lost[0]))
        return [partial(mark_settled, verb, settles)]

    def failure(refused: CommitRefused) -> Exception:
        return _lost(ordered, refused.message_ids, refused.holder)

    steps = [Step(call, finish, failure)]
    dead = (
        [one.delivery.message_id for one in ordered if _is_awaited_dead(one)] if verb in {Verb.BURY, Verb.RETRY} else []
    )
    if dead and can_notify(connection):
        steps.append(Step(target.call("fq_wake_results", "wake those who wait in", ids=dead)))
    return steps


def mark_settled(verb: Verb, settles: Iterable[Settle]) -> None:
    name = verb.value
    for one in settles:
        one.delivery.settled.append(name)


def _is_awaited_dead(settle: Settle) -> bool:
    delivery = settle.delivery
    is_dead = settle.verb is Verb.BURY or delivery.attempt >= delivery.max_attempts
    return is_dead and delivery.keeps_result and settle.target.notify


def _lost(settles: Sequence[Settle], lost: Sequence[int], holder: str | None) -> LeaseLost:
    first = next(one.delivery for one in settles if one.delivery.message_id == lost[0])
    return LeaseLost(tuple(lost), first.lease.id, first.lease.expires_at, holder)


_NONE: Mapping[int, int] = MappingProxyType({})
# attrgetter is called from C, which matters for many messages.
_membership = attrgetter("membership")


@dataclass(slots=True, eq=False)
class EnqueueMessage(EncodedMessage):
    """An enqueue of a message."""

    phase: ClassVar[int] = ENQUEUES
    target: Target
    receipt: Receipt

    @property
    def group_id(self) -> UUID | None:
        return None if self.membership is None else self.membership.group_id


@dataclass(frozen=True, slots=True)
class MakeGroup:
    """The creation of a group; *sent* is called after the commit."""

    phase: ClassVar[int] = GROUPS
    target: Target
    group_id: UUID
    then: EncodedMessage | None
    on_failure: EncodedMessage | None
    sent: ReceiptUpdate


class Members:
    """The groups of one queue that a transaction creates or adds members to.

    Attributes:
        adding: Ids of messages whose handlers add members. Lock these messages, so that they end after the transaction.
        join: Whether other transactions created some of the groups. If so, :meth:`send_joins` tells the server how many
            members are new. If not, the statement of the enqueues counts the new members.
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
        """Return the steps that create the groups, to run before the enqueue of members. They wait for no lock."""
        steps: list[Step] = []
        target = self._share.target
        for make in self._makes:
            followups = [one for one in (make.then, make.on_failure) if one is not None]
            call = target.call(
                "fq_make_group",
                f"make group {make.group_id} of",
                group_id=str(make.group_id),
                on_failures=[one is make.on_failure for one in followups] or None,
                policy=make.target.policy,
                **followup_values(followups),
            )
            steps.append(Step(call, partial(_returned, [make.sent])))
            if not self.join and make.group_id not in self._adders:
                steps.append(Step(self._join(make.group_id)))
        return steps

    def send_joins(self) -> None:
        """If *join* is set, tell the server how many members are new.

        Raise UnknownGroup if the transaction may not add members. Raise LeaseLost if the delivery of a handler that
        adds members is lost, and MessageCancelled if the message of that handler was cancelled.
        """
        if not self.join:
            return
        connection, target = self._share.link.connection, self._share.target
        for group_id in dict.fromkeys([*(make.group_id for make in self._makes), *self._adders]):
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
                continue
            if outcome == "cancelled":
                raise MessageCancelled(adder.message_id)
            holder = find_holder(connection, target, adder.message_id)
            raise LeaseLost((adder.message_id,), adder.lease.id, adder.lease.expires_at, holder)

    def _join(self, group_id: UUID) -> Call:
        adder = self._adders.get(group_id)
        return self._share.target.call(
            "fq_join_group",
            f"join group {group_id} of",
            group_id=str(group_id),
            added=sum(count for one, count in self.created.items() if one.group_id == group_id),
            message_id=None if adder is None else adder.message_id,
            lease_id=None if adder is None else adder.lease.id,
            deliveries=None if adder is None else adder.deliveries,
        )


def members_of(share: Share) -> Members | None:
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
    """Return the steps that create groups and add messages; they raise as ``Queue.enqueue`` does.

    Args:
        leased: Ids of further messages that the transaction will lock. If an enqueue may replace or coalesce, these
            are locked together with the messages that the transaction settles, cancels or replaces, ordered by id.
        cancelled: From :func:`cancelled_messages`. Enqueues are sent before cancels, so a cancel frees no key for them.
            If an earlier call cancelled the message that holds an enqueue's key, the enqueue raises DuplicateMessage.
        refusing: Whether the steps are sent together with the COMMIT. If so, the statement fails if an enqueue is
            refused, since Python would see the outcome too late.
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
        enqueues[0].target,
        enqueues,
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
        # One update for all messages, since an object for each would burden the garbage collector.
        return [partial(_fill, enqueues, added)]

    def failure(refused: CommitRefused) -> Exception:
        enqueue = enqueues[cast("int", refused.ordinal) - 1]
        if refused.outcome == "full":
            return _full(share.target, enqueue.message.channel, refused.max_backlog)
        return _duplicate(enqueue, refused.message_ids[0])

    return [*steps, Step(call, finish, failure)]


def _check(
    share: Share, enqueues: Sequence[EnqueueMessage], added: EnqueuedMessages, cancelled: Mapping[int, int]
) -> None:
    target = share.target
    for ordinal, message_id, outcome in zip(*added, strict=True):
        enqueue = enqueues[ordinal - 1]
        if outcome == "full":
            channel = enqueue.message.channel
            told = refusal(share.link.connection, target, "read the policy of", outcome=outcome, channel=channel)
            raise _full(target, channel, told["max_backlog"])
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
    """Return how many enqueues of *share* were called before each of its cancels, by the id of the cancelled message.

    *asked* is in the order of the calls. Enqueues are sent before cancels, so later enqueues still find the key taken.
    """
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
