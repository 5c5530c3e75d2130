"""Settlements and cancels of one queue, sent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import Token
from sqlalchemy_fairqueue.errors import LeaseLost
from sqlalchemy_fairqueue.unit_of_work.operations import Settle, Verb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database import Unsettled
    from sqlalchemy_fairqueue.unit_of_work.operations import Cancel, MessageChange, ReceiptUpdate, Target
    from sqlalchemy_fairqueue.values import CancelOutcome, CancelReceipt, Delivery


def settle_and_cancel(connection: Connection, target: Target, changes: Sequence[MessageChange]) -> list[ReceiptUpdate]:
    """Settle and cancel messages: all of them are locked in the order of their ids before one changes.

    Raises:
        LeaseLost: A delivery is not its holder's any more. The transaction must be rolled back.
    """
    settles: list[Settle] = []
    cancels: list[Cancel] = []
    for change in changes:
        if isinstance(change, Settle):
            settles.append(change)
        else:
            cancels.append(change)
    if settles and cancels:
        database.hold_messages(connection, target, {change.message_id for change in changes})
    elif len({settle.verb for settle in settles}) > 1:
        database.hold_deliveries(connection, target, sorted(token_of(settle.delivery) for settle in settles))
    for verb in Verb:
        if same := [one for one in settles if one.verb is verb]:
            settle(connection, target, verb, same)
    updates: list[ReceiptUpdate] = [partial(one.delivery.settled.append, one.verb.value) for one in settles]
    if cancels:
        exceptions = database.cancel(connection, target, {one.message_id for one in cancels})
        updates += [partial(_update, one.receipt, exceptions.get(one.message_id, "cancelled")) for one in cancels]
    return updates


def _update(receipt: CancelReceipt, outcome: CancelOutcome) -> None:
    receipt.outcome = outcome


def settle(connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle]) -> None:
    """Settle deliveries of one queue by one verb, in one statement. Of one that is asked for twice the first counts.

    Raises:
        LeaseLost: Some are not their holder's any more; the others are settled, unless the caller rolls back.
    """
    once = {token_of(one.delivery): one for one in reversed(settles)}
    tokens = sorted(once)
    unsettled = _settle(connection, target, verb, tokens, once)
    if lost := sorted({message_id for message_id, outcome in unsettled if outcome == "lost"}):
        first = next(once[token].delivery for token in tokens if token.message_id == lost[0])
        holder = database.holder(connection, target, first.message_id)
        raise LeaseLost(tuple(lost), first.lease.id, first.lease.expires_at, holder)


def _settle(
    connection: Connection, target: Target, verb: Verb, tokens: Sequence[Token], settles: Mapping[Token, Settle]
) -> list[Unsettled]:
    if verb is Verb.COMPLETE:
        return database.complete(connection, target, tokens)
    errors = [settles[token].error for token in tokens]
    if verb is Verb.BURY:
        reasons = [settles[token].reason for token in tokens]
        return database.bury(connection, target, tokens, reasons=reasons, errors=errors)
    delays = [settles[token].delay for token in tokens]
    notify = all(one.target.notify for one in settles.values())
    if verb is Verb.RELEASE:
        return database.release(connection, target, tokens, delays=delays, notify=notify)
    return database.retry(connection, target, tokens, delays=delays, errors=errors, notify=notify)


def token_of(delivery: Delivery) -> Token:
    """The token of a delivery."""
    return Token(delivery.message_id, delivery.row_id, delivery.lease.id, delivery.deliveries)
