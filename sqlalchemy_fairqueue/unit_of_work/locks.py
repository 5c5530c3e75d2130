"""Lock order of queue work, how far into it each open transaction is, and the locks that come before the work itself.

Source of the rule: two transactions that take the same locks in one order never wait for each other in a circle.

A single call takes its locks in the right order by itself. A transaction with configuration and other work takes those
of all its queues first: rows of queues, plans, states of channels, messages by id. Keys come with the enqueues. Each
row is locked in the phase of its kind, before any call that needs it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database.drivers import driver_of, is_in_autocommit
from sqlalchemy_fairqueue.errors import AutocommitError, LockOrderError
from sqlalchemy_fairqueue.unit_of_work.work import in_lock_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine import Transaction

    from sqlalchemy_fairqueue.unit_of_work.operations import Configuration, EnqueueMessage, Locks, MessageChange
    from sqlalchemy_fairqueue.unit_of_work.work import Where
    from sqlalchemy_fairqueue.values import ChannelPolicy

    Configured = Sequence[tuple[Where, Sequence[tuple[Locks, Configuration]]]]

LockKey = tuple[str, str, str, str]
"""(schema, queue, channel, key). Python sorts texts by code points, which is the order of their UTF-8: COLLATE "C"."""


def lock_key(operation: EnqueueMessage) -> LockKey:
    """The key by which an enqueue is sorted into the lock order."""
    target = operation.target
    return target.schema or "", target.queue, operation.message.channel, operation.message.key or ""


class LockOrder:
    """The progress of one transaction: the greatest lock key that it has sent, and whether it has settled anything."""

    __slots__ = ("furthest", "settled")

    def __init__(self) -> None:
        self.furthest: LockKey | None = None
        self.settled: bool = False

    def check(self, messages: Iterable[EnqueueMessage]) -> None:
        """Refuse enqueues, at least one, that sort before what the transaction has sent.

        Raises:
            LockOrderError: One of them does; nothing was sent.
        """
        if self.furthest is None and not self.settled:
            return
        least = min(map(lock_key, messages))
        if self.settled:
            raise LockOrderError(
                f"enqueue to {_shown(least)} after a completion, release, retry, bury, cancel, redrive or "
                "configuration of the same transaction; enqueue first, or record both on a session, which sorts them; "
                "a redrive is sent at once: call it on an engine",
                sent="completion",
                refused=least,
            )
        if self.furthest is not None and least < self.furthest:
            raise LockOrderError(
                f"enqueue to {_shown(least)} after {_shown(self.furthest)} in the same transaction, "
                "against the lock order; sort them by (queue, channel, key), or enqueue on a session, which does",
                sent=self.furthest,
                refused=least,
            )

    def advance(self, keys: Iterable[LockKey]) -> None:
        """Remember the furthest of these keys, whose locks the transaction has now."""
        # One after the other, for many keys that are kept at once cost the garbage collector more than this.
        self.furthest = max(chain(filter(None, [self.furthest]), keys), default=None)


_lock_orders: WeakKeyDictionary[Transaction, LockOrder] = WeakKeyDictionary()


def lock_order_of(connection: Connection) -> LockOrder:
    """The lock order of the connection's transaction, which is begun if there is none.

    Raises:
        InvalidArgument: The connection is not to PostgreSQL through a driver that the queue works on.
        AutocommitError: It commits each statement by itself.
    """
    driver_of(connection)
    if is_in_autocommit(connection):
        raise AutocommitError(
            f"the connection to {connection.engine.url.render_as_string()} is in AUTOCOMMIT, where queue work would "
            "not be atomic with the business writes; use an engine or session without isolation_level='AUTOCOMMIT'"
        )
    transaction = connection.get_transaction() or connection.begin()
    return _lock_orders.setdefault(transaction, LockOrder())


def forget(connection: Connection) -> None:
    """Start the lock order anew on a connection whose session is done, though an outer transaction may go on.

    Sessions joined into one external transaction follow each other like transactions do: each has its own order. The
    locks of the earlier ones are still held, so that two such transactions can deadlock, which PostgreSQL finds.
    """
    transaction = None if connection.closed else connection.get_transaction()
    if transaction is not None:
        _lock_orders.pop(transaction, None)


def lock_settings(configured: Configured) -> None:
    """Lock the rows of queues whose own settings change, then plans that are changed, removed, or that channels get."""
    for (connection, target), changes in configured:
        if any(locks.queue for locks, _ in changes):
            target.call("fq_lock_queue", f"lock queue {target.queue!r}").rows(connection)
    for (connection, target), changes in configured:
        changed = [locks.changed_plan for locks, _ in changes if locks.changed_plan is not None]
        used = [locks.used_plan for locks, _ in changes if locks.used_plan is not None]
        if changed or used:
            doing = f"lock plans of queue {target.queue!r}"
            target.call("fq_lock_plans", doing, removed=changed, used=used).rows(connection)


def lock_channels(configured: Configured, enqueued: Iterable[tuple[Where, Sequence[EnqueueMessage]]]) -> None:
    """Lock the states of channels that are configured, paused, resumed or purged; make those that will be."""
    filled = {where: (messages[0].policy, {one.message.channel for one in messages}) for where, messages in enqueued}
    for where, changes in configured:
        brought, channels = filled.get(where, (None, frozenset[str]()))
        made: dict[str, ChannelPolicy | None] = {}
        for locks, _ in changes:
            if locks.channel is not None and made.get(locks.channel) is None:
                # The first that would make it brings its policy.
                is_filled = locks.policy is not None and locks.channel in channels
                made[locks.channel] = brought if is_filled else locks.policy
        if made:
            database.lock_channels(*where, made)


def leased_messages(configured: Configured) -> dict[Where, list[int]]:
    """The leased messages that new limits count and lock, none of which is added to: the gates of queues are closed.

    The states of the channels are held.
    """
    found: dict[Where, list[int]] = {}
    for where, changes in configured:
        connection, target = where
        limited = [locks.channel for locks, _ in changes if locks.limits]
        ids: list[int] = []
        if channels := [channel for channel in limited if channel is not None]:
            ids += database.leased_without_slot(connection, target, channels)
        if None in limited:
            # Nobody takes messages without a limit until the transaction ends.
            target.call("fq_lock_gate", f"close the gate of queue {target.queue!r}", limited=None).rows(connection)
            ids += database.leased_without_slot(connection, target, None)
        if ids:
            found[where] = ids
    return found


def lock_messages(changes: Iterable[tuple[Where, Sequence[MessageChange]]], leased: dict[Where, list[int]]) -> None:
    """Lock the messages that new limits count and those that are settled or cancelled, before a change locks others."""
    found = {where: list(ids) for where, ids in leased.items()}
    for where, group in changes:
        found.setdefault(where, []).extend(change.message_id for change in group)
    for where, ids in in_lock_order(found):
        database.lock_messages(*where, set(ids))


def _shown(key: LockKey) -> str:
    schema, queue, channel, message_key = key
    return (
        f"channel {channel!r} of queue {queue!r}"
        + (f" in schema {schema!r}" if schema else "")
        + (f" with key {message_key!r}" if message_key else "")
    )
