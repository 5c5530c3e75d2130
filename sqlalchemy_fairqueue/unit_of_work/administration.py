"""Configuration changes of one queue, sent in lock order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.unit_of_work.operations import Configure, Limit, Pause, Purge, RecordHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Configuration, ReceiptUpdate, Target
    from sqlalchemy_fairqueue.values import PurgeReceipt


def configure(connection: Connection, target: Target, changes: Sequence[Configuration]) -> list[ReceiptUpdate]:
    """Change one queue, in lock order: what is the queue's, what is its channels', the limit on the whole.

    What is asked of one channel, or of the queue, keeps the order in which it was asked for.
    """
    updates: list[ReceiptUpdate] = []
    in_order = sorted(changes, key=_lock_key)
    if isinstance(in_order[-1], Limit) and len(in_order) > 1:
        # The limit locks the queue's row too, before all channels.
        database.hold_queue(connection, target)
    for change in in_order:
        notify = change.target.notify
        match change:
            case Configure(channel=None):
                database.configure_queue(connection, target, change.changes, policy=change.policy)
            case Configure(channel=str(channel)):
                database.configure_channel(
                    connection, target, channel, change.changes, policy=change.policy, notify=notify
                )
            case Limit():
                database.limit_queue(connection, target, change.max_concurrency, notify=notify)
            case RecordHistory():
                database.record_queue(connection, target, history=change.history, retention=change.retention)
            case Pause(paused=True):
                database.pause(connection, target, change.channel, new=change.new)
            case Pause():
                database.resume(connection, target, change.channel, notify=notify)
            case Purge():
                purged = database.purge_channel(connection, target, change.channel)
                updates.append(partial(_update, change.receipt, purged))
    return updates


def _lock_key(change: Configuration) -> tuple[bool, bytes]:
    # The limit on the whole queue locks the leased messages of all channels, whose state rows go before them.
    match change:
        case Limit():
            return True, b""
        case RecordHistory():
            return False, b""
    return False, (change.channel or "").encode()


def _update(receipt: PurgeReceipt, purged: int) -> None:
    receipt.purged = purged
