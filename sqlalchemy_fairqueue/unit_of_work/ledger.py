"""The lock order, and how far into it each open transaction is.

Source of the rule: two transactions that take the same locks in one order never wait for each other in a circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy_fairqueue.errors import AutocommitError, LockOrderError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection
    from sqlalchemy.engine import Transaction

    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage

Place = tuple[bytes, bytes, bytes, bytes]


def place(operation: EnqueueMessage) -> Place:
    """Where an enqueue stands in the lock order: (schema, queue, channel, key) as UTF-8 bytes, which is COLLATE "C"."""
    target = operation.target
    return (
        (target.schema or "").encode(),
        target.queue.encode(),
        operation.message.channel.encode(),
        (operation.message.key or "").encode(),
    )


class Ledger:
    """What one transaction has sent: its furthest place in the lock order, and whether it has settled anything."""

    __slots__ = ("furthest", "settled")

    def __init__(self) -> None:
        self.furthest: Place | None = None
        self.settled = False

    def check(self, places: Iterable[Place]) -> None:
        """Refuse enqueues that sort before what the transaction has sent.

        Raises:
            LockOrderError: One of them does; nothing was sent.
        """
        least = min(places, default=None)
        if least is None:
            return
        if self.settled:
            raise LockOrderError(
                f"enqueue to {_words(least)} after a completion, release, retry, bury, cancel, redrive or "
                "configuration of the same transaction; enqueue first, or record both on a session, which sorts them; "
                "a redrive is sent at once: call it on an engine",
                sent="completion",
                refused=_names(least),
            )
        if self.furthest is not None and least < self.furthest:
            raise LockOrderError(
                f"enqueue to {_words(least)} after {_words(self.furthest)} in the same transaction, "
                "against the lock order; sort them by (queue, channel, key), or use queue.enqueue, which does",
                sent=_names(self.furthest),
                refused=_names(least),
            )

    def advance(self, places: Iterable[Place]) -> None:
        """Remember what was sent."""
        self.furthest = max(filter(None, (self.furthest, *places)), default=None)


_ledgers: WeakKeyDictionary[Transaction, Ledger] = WeakKeyDictionary()


def ledger_of(connection: Connection) -> Ledger:
    """The ledger of the connection's transaction, begun if there is none.

    Raises:
        AutocommitError: The connection commits each statement by itself.
    """
    if getattr(connection.connection.driver_connection, "autocommit", False):
        raise AutocommitError(
            f"the connection to {connection.engine.url.render_as_string()} is in AUTOCOMMIT, where queue work would "
            "not be atomic with the business writes; use an engine or session without isolation_level='AUTOCOMMIT'"
        )
    transaction = connection.get_transaction() or connection.begin()
    return _ledgers.setdefault(transaction, Ledger())


def forget(connection: Connection) -> None:
    """Start the lock order anew on a connection whose session is done, though an outer transaction may go on.

    Sessions joined into one external transaction follow each other like transactions do: each has its own order. The
    locks of the earlier ones are still held, so that two such transactions can deadlock, which PostgreSQL finds.
    """
    transaction = None if connection.closed else connection.get_transaction()
    if transaction is not None:
        _ledgers.pop(transaction, None)


def _names(place_: Place) -> tuple[str, ...]:
    return tuple(part.decode() for part in place_)


def _words(place_: Place) -> str:
    schema, queue, channel, key = _names(place_)
    return (
        f"channel {channel!r} of queue {queue!r}"
        + (f" in schema {schema!r}" if schema else "")
        + (f" with key {key!r}" if key else "")
    )
