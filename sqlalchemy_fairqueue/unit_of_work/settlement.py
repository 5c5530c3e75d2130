"""Settlements and cancels of one queue, sent."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import Token
from sqlalchemy_fairqueue.errors import LeaseLost
from sqlalchemy_fairqueue.unit_of_work.operations import Step, Verb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import MessageChange, ReceiptUpdate, Settle, Target
    from sqlalchemy_fairqueue.values import CancelOutcome, CancelReceipt, Delivery

# One that C calls: it is asked of each message that is completed.
_KEEPS = attrgetter("delivery.keeps_result")


def settle_and_cancel(connection: Connection, target: Target, changes: Sequence[MessageChange]) -> list[ReceiptUpdate]:
    """Settle and cancel messages: all of them are locked in the order of their ids before one changes.

    Raises:
        LeaseLost: A delivery is not its holder's any more. The transaction must be rolled back.
    """
    settles: list[Any] = [change for change in changes if change.verb is not None]
    cancels: list[Any] = [change for change in changes if change.verb is None]
    if settles and cancels:
        database.lock_messages(connection, target, {change.message_id for change in changes})
    elif len({settle.verb for settle in settles}) > 1:
        database.lock_deliveries(target, sorted(token_of(settle.delivery) for settle in settles)).rows(connection)
    for verb in Verb:
        if same := [one for one in settles if one.verb is verb]:
            settle(connection, target, verb, same)
    updates: list[ReceiptUpdate] = [partial(one.delivery.settled.append, one.verb.value) for one in settles]
    if cancels:
        notify = all(one.target.notify for one in cancels)
        exceptions = database.cancel(connection, target, {one.message_id for one in cancels}, notify=notify)
        updates += [partial(_update, one.receipt, exceptions.get(one.message_id, "cancelled")) for one in cancels]
    return updates


def _update(receipt: CancelReceipt, outcome: CancelOutcome) -> None:
    receipt.outcome = outcome


def settle(connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle]) -> None:
    """Settle deliveries of one queue by one verb, in one statement. Of one that is asked for twice the first counts.

    Raises:
        LeaseLost: Some are not their holder's any more; the others are settled, unless the caller rolls back.
    """
    once = _once(settles)
    unsettled = _call(connection, target, verb, once).tuples(connection)
    dead = _awaited_dead(verb, once)
    if dead and (wakes := database.wake_results(connection, target, dead)):
        wakes.rows(connection)
    if lost := sorted({message_id for message_id, outcome in unsettled if outcome == "lost"}):
        raise _lost(once, lost, database.holder(connection, target, lost[0]))


def settle_steps(connection: Connection, target: Target, settles: Sequence[Settle]) -> list[Step]:
    """The steps that settle deliveries of one queue, to be sent together with COMMIT.

    The messages are locked as by :func:`settle_and_cancel`.
    """
    steps: list[Step] = []
    if len({settle.verb for settle in settles}) > 1:
        tokens = sorted(token_of(settle.delivery) for settle in settles)
        steps.append(Step(database.lock_deliveries(target, tokens)))
    for verb in Verb:
        if same := [one for one in settles if one.verb is verb]:
            steps.append(_settle_step(connection, target, verb, same))
            dead = _awaited_dead(verb, _once(same))
            if dead and (wakes := database.wake_results(connection, target, dead)):
                steps.append(Step(wakes))
    return steps


def _settle_step(connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle]) -> Step:
    once = _once(settles)

    def updates(rows: Sequence[Any]) -> list[ReceiptUpdate]:  # noqa: ARG001 - there are none
        return [partial(one.delivery.settled.append, verb.value) for one in settles]

    def failure(refused: database.CommitRefused) -> Exception:
        return _lost(once, refused.message_ids, refused.holder)

    return Step(_call(connection, target, verb, once, refusing=True), updates, failure)


def _once(settles: Sequence[Settle]) -> dict[Token, Settle]:
    return {token_of(one.delivery): one for one in reversed(settles)}


def _lost(settles: Mapping[Token, Settle], lost: Sequence[int], holder: str | None) -> LeaseLost:
    first = next(settles[token].delivery for token in sorted(settles) if token.message_id == lost[0])
    return LeaseLost(tuple(lost), first.lease.id, first.lease.expires_at, holder)


def _awaited_dead(verb: Verb, settles: Mapping[Token, Settle]) -> list[int]:
    """The messages that become dead letters, and whose results somebody may wait for."""
    if verb not in {Verb.BURY, Verb.RETRY}:
        return []
    return sorted(
        one.message_id
        for one in settles.values()
        if one.delivery.keeps_result
        and one.target.notify
        and (verb is Verb.BURY or one.delivery.attempt >= one.delivery.max_attempts)
    )


def _call(
    connection: Connection, target: Target, verb: Verb, settles: Mapping[Token, Settle], *, refusing: bool = False
) -> database.Call:
    tokens = sorted(settles)
    if verb is Verb.COMPLETE and not any(map(_KEEPS, settles.values())):
        costs = [settles[token].cost for token in tokens]
        return database.settlement(connection, target, "complete", tokens, costs=costs, refusing=refusing)
    ordered = [settles[token] for token in tokens]
    return database.settlement(
        connection,
        target,
        verb.value,
        tokens,
        delays=[one.delay for one in ordered],
        errors=[one.error for one in ordered],
        reasons=[one.reason for one in ordered],
        results=[_kept(one) for one in ordered],
        notify=all(one.target.notify for one in ordered),
        costs=[one.cost for one in ordered],
        refusing=refusing,
    )


def _kept(settle: Settle) -> database.EncodedResult | None:
    """The result to keep of a message that is completed. None: nothing."""
    return settle.result or database.EncodedResult() if settle.delivery.keeps_result else None


def token_of(delivery: Delivery) -> Token:
    """The token of a delivery."""
    return Token(delivery.message_id, delivery.row_id, delivery.lease.id, delivery.deliveries)
