"""Lock order of queue work, and how far into it each open transaction is.

Source of the rule: two transactions that take the same locks in one order never wait for each other in a circle.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy_fairqueue.database.drivers import is_in_autocommit
from sqlalchemy_fairqueue.errors import AutocommitError, LockOrderError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection
    from sqlalchemy.engine import Transaction

    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage

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

    def check(self, keys: Iterable[LockKey]) -> None:
        """Refuse enqueues that sort before what the transaction has sent.

        Raises:
            LockOrderError: One of them does; nothing was sent.
        """
        least = min(keys, default=None) if self.settled or self.furthest is not None else None
        if least is None:
            return
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
        AutocommitError: The connection commits each statement by itself.
    """
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


def _shown(key: LockKey) -> str:
    schema, queue, channel, message_key = key
    return (
        f"channel {channel!r} of queue {queue!r}"
        + (f" in schema {schema!r}" if schema else "")
        + (f" with key {message_key!r}" if message_key else "")
    )
