"""The settlements and cancels of one queue: the statements, and the outcomes for receipts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sqlalchemy_fairqueue.database.calls import CommitRefused, call, can_notify
from sqlalchemy_fairqueue.database.deliveries import EncodedResult, Token, find_holder, lock_deliveries, settlement
from sqlalchemy_fairqueue.database.messages import named_messages
from sqlalchemy_fairqueue.errors import LeaseLost
from sqlalchemy_fairqueue.unit_of_work.operations import CANCELS, SETTLEMENTS, Step, notifies, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.unit_of_work.operations import ReceiptUpdate, Share
    from sqlalchemy_fairqueue.values.messages import CancelOutcome, CancelReceipt, Delivery, MessageName

# attrgetter is called from C, which matters for many messages. A plain tuple is enough as a token here.
_token = cast(
    "Callable[[Settle], Token]",
    attrgetter("delivery.message_id", "delivery.row_id", "delivery.lease.id", "delivery.deliveries"),
)
_keeps_result = attrgetter("delivery.keeps_result")
_cost = attrgetter("cost")
_charged = attrgetter("charged")
# For several messages, the first of these that occurs is the outcome.
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

    Attributes:
        delay: For retry and release.
        reason: For bury.
        error: For retry and bury.
        cost: The actual cost of the attempt. None: as charged.
        charged: The cost that its channel was charged while its handler ran, or None.
        result: For complete, the result to keep, or None.
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
    """A withdrawal of messages.

    Attributes:
        receipt: Receives the outcomes.
        name: The name of the messages, whose ids :func:`find_named` finds; None if ids were given.
    """

    phase: ClassVar[int] = CANCELS
    target: Target
    receipt: CancelReceipt
    message_ids: list[int]
    name: MessageName | None = None


def find_named(share: Share) -> None:
    """Find the ids of messages that are cancelled by name, before enqueues can give the name to others."""
    named = [one for one in share.phases.get(CANCELS, ()) if one.name is not None]
    if not named:
        return
    ids: list[list[int]] = [[] for _ in named]
    for message_id, ordinal in named_messages(share.target, [one.name for one in named]).rows(share.link.connection):
        ids[ordinal - 1].append(message_id)
    for one, found in zip(named, ids, strict=True):
        one.message_ids = found


def message_ids(share: Share) -> list[int]:
    settled = [one.delivery.message_id for one in share.phases.get(SETTLEMENTS, ())]
    return settled + [message_id for one in share.phases.get(CANCELS, ()) for message_id in one.message_ids]


def lock_messages(share: Share, ids: Iterable[int]) -> None:
    """Lock messages in the order of their ids, whoever holds them."""
    ordered, target = sorted(set(ids)), share.target
    doing = f"lock {len(ordered)} messages of {target.named()}"
    call(target.schema, "fq_lock_messages", doing, ids=ordered).rows(share.link.connection)


def settle_and_cancel(share: Share) -> list[ReceiptUpdate]:
    """Settle and cancel messages. All are locked in the order of their ids before one changes.

    Raises:
        LeaseLost: A delivery is lost. The transaction must be rolled back.
    """
    connection, target, cancels = share.link.connection, share.target, share.phases.get(CANCELS)
    if not cancels:
        return run(connection, settle_steps(share))
    updates: list[ReceiptUpdate] = []
    if SETTLEMENTS in share.phases:
        lock_messages(share, message_ids(share))
        updates = run(connection, settle_steps(share))
    ids = sorted({message_id for one in cancels for message_id in one.message_ids})
    call = target.call("fq_cancel", f"cancel messages of {target.named()}", ids=ids, notify=all(map(notifies, cancels)))
    # The outcomes other than "cancelled".
    exceptions = dict(map(tuple, call.rows(connection)))
    return updates + [
        partial(_fill, one.receipt, {each: exceptions.get(each, "cancelled") for each in one.message_ids})
        for one in cancels
    ]


def _fill(receipt: CancelReceipt, outcomes: dict[int, CancelOutcome]) -> None:
    receipt.outcomes = outcomes
    receipt.outcome = next((one for one in _CANCELLED if one in outcomes.values()), "missing")


def settle_steps(share: Share, *, refusing: bool = False) -> list[Step]:
    """Return the steps that settle messages of a queue, after locking all in the order of their ids.

    *refusing* steps travel with the COMMIT and fail themselves if a delivery is lost. The steps raise LeaseLost; the
    transaction must be rolled back then.
    """
    by_verb: dict[Verb, list[Settle]] = {}
    for one in share.phases.get(SETTLEMENTS, ()):
        by_verb.setdefault(one.verb, []).append(one)
    steps: list[Step] = []
    if len(by_verb) > 1 and CANCELS not in share.phases:
        tokens = sorted(token for same in by_verb.values() for token in map(_token, same))
        steps.append(Step(lock_deliveries(share.target, tokens)))
    for verb in Verb if by_verb else ():
        if verb in by_verb:
            steps += _verb_steps(share.link.connection, share.target, verb, by_verb[verb], refusing=refusing)
    return steps


def settle(connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle]) -> None:
    """Settle deliveries of one queue by one verb, in one statement. If one is there twice, the first counts.

    Raises:
        LeaseLost: Some are lost; the others are settled, unless the caller rolls back.
    """
    run(connection, _verb_steps(connection, target, verb, settles))


def _verb_steps(
    connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle], *, refusing: bool = False
) -> list[Step]:
    # If a delivery is settled twice, the first time counts.
    once = dict(zip(map(_token, reversed(settles)), reversed(settles), strict=True))
    tokens = sorted(once)
    ordered = [once[token] for token in tokens]
    how: dict[str, Any] = {}
    if verb is not Verb.COMPLETE or any(map(_keeps_result, ordered)):
        how = {
            "delays": [one.delay for one in ordered],
            "errors": [one.error for one in ordered],
            "reasons": [one.reason for one in ordered],
            # The result to keep of a completed message, if any.
            "results": [one.result or EncodedResult() if one.delivery.keeps_result else None for one in ordered],
            "notify": all(map(notifies, ordered)),
        }
    costs, charged = list(map(_cost, ordered)), list(map(_charged, ordered))
    call = settlement(target, verb.value, tokens, costs=costs, charged=charged, refusing=refusing, **how)

    def finish(rows: Sequence[Any]) -> list[ReceiptUpdate]:
        if lost := sorted({message_id for message_id, outcome in rows if outcome == "lost"}):
            raise _lost(ordered, lost, find_holder(connection, target, lost[0]))
        return [update]

    def update() -> None:
        name = verb.value
        for one in settles:
            one.delivery.settled.append(name)

    def failure(refused: CommitRefused) -> Exception:
        return _lost(ordered, refused.message_ids, refused.holder)

    steps = [Step(call, finish, failure)]
    dead = (
        [one.delivery.message_id for one in ordered if _is_awaited_dead(one)] if verb in {Verb.BURY, Verb.RETRY} else []
    )
    if dead and can_notify(connection):
        doing = f"wake those who wait in {target.named()}"
        steps.append(Step(target.call("fq_wake_results", doing, ids=dead)))
    return steps


def _is_awaited_dead(settle: Settle) -> bool:
    """Return whether a retry or bury makes the message a dead letter, and somebody may wait for its result."""
    delivery = settle.delivery
    is_dead = settle.verb is Verb.BURY or delivery.attempt >= delivery.max_attempts
    return is_dead and delivery.keeps_result and settle.target.notify


def _lost(settles: Sequence[Settle], lost: Sequence[int], holder: str | None) -> LeaseLost:
    first = next(one.delivery for one in settles if one.delivery.message_id == lost[0])
    return LeaseLost(tuple(lost), first.lease.id, first.lease.expires_at, holder)


def token_of(delivery: Delivery) -> Token:
    return Token(delivery.message_id, delivery.row_id, delivery.lease.id, delivery.deliveries)
