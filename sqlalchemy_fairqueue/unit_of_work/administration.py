"""Configuration changes of one queue, sent in lock order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.unit_of_work.operations import (
    Configure,
    Limit,
    Pause,
    Purge,
    RecordHistory,
    RetainDeadLetters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Configuration, ReceiptUpdate, Target
    from sqlalchemy_fairqueue.values import PurgeReceipt


def configure(connection: Connection, target: Target, changes: Sequence[Configuration]) -> list[ReceiptUpdate]:
    """Change one queue, in lock order: what is the queue's, what is its channels', the limit on the whole.

    What is asked of one channel, or of the queue, keeps the order in which it was asked for.
    """
    updates: list[ReceiptUpdate] = []
    for change in sorted(changes, key=_lock_key):
        notify = change.target.notify
        match change:
            case Configure(channel=None):
                database.configure_queue(connection, target, change.changes, policy=change.policy)
            case Configure(channel=str(channel)):
                database.configure_channel(
                    connection, target, channel, change.changes, policy=change.policy, notify=notify
                )
            case Limit():
                database.limit_queue(connection, target, change.changes, notify=notify)
            case RecordHistory():
                database.record_queue(connection, target, history=change.history, retention=change.retention)
            case RetainDeadLetters():
                database.retain_dead_letters(connection, target, change.kind, change.retention)
            case Pause():
                _pause(connection, change)
            case Purge():
                purged = database.purge_channel(connection, target, change.channel)
                updates.append(partial(_update, change.receipt, purged))
    return updates


def settings_of_queues(
    routed: Iterable[tuple[Connection, Configuration]],
) -> tuple[list[tuple[Connection, Configuration]], list[tuple[Connection, Configuration]]]:
    """The settings that are the queue's own and lock nothing but its row, and the other changes."""
    own: list[tuple[Connection, Configuration]] = []
    other: list[tuple[Connection, Configuration]] = []
    for connection, change in routed:
        of_queue = isinstance(change, (RecordHistory, RetainDeadLetters)) or (
            isinstance(change, (Configure, Pause)) and change.channel is None
        )
        (own if of_queue else other).append((connection, change))
    return own, other


def _pause(connection: Connection, change: Pause) -> None:
    if change.paused:
        database.pause(connection, change.target, change.channel, new=change.new)
    else:
        database.resume(connection, change.target, change.channel, notify=change.target.notify)


def _lock_key(change: Configuration) -> tuple[bool, bytes]:
    # The limit on the whole queue locks the leased messages of all channels, whose state rows go before them.
    match change:
        case Limit():
            return True, b""
        case RecordHistory() | RetainDeadLetters():
            return False, b""
    return False, (change.channel or "").encode()


def _update(receipt: PurgeReceipt, purged: int) -> None:
    receipt.purged = purged
