"""Sends the queue work of a transaction, in lock order. This module does not know sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy_fairqueue.database.calls import CommitRefused, Link, Target
from sqlalchemy_fairqueue.database.installation import check_installed
from sqlalchemy_fairqueue.errors import LockOrderError
from sqlalchemy_fairqueue.unit_of_work import changes
from sqlalchemy_fairqueue.unit_of_work.operations import (
    CANCELS,
    CHANGES,
    ENQUEUES,
    GROUPS,
    REMOVALS,
    SCHEDULES,
    SETTINGS,
    SETTLEMENTS,
    Members,
    Share,
    cancelled_messages,
    enqueue_steps,
    find_named,
    lock_messages,
    members_of,
    message_ids,
    run,
    settle_and_cancel,
    settle_steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine import Transaction

    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, Operation, ReceiptUpdate, Step

LockKey = tuple[str, str, str, str]
"""(schema, queue, channel, key). Python compares texts by code points, as PostgreSQL does in UTF-8 by COLLATE "C"."""

# Phases whose answers Python need not see before the COMMIT.
_TRAVELLING = {GROUPS, ENQUEUES, SETTLEMENTS}
_CONFIGURING = {SETTINGS, CHANGES, REMOVALS}
_SETTLING = _CONFIGURING | {SETTLEMENTS, CANCELS}
_call = attrgetter("call")


@dataclass(slots=True, eq=False)
class LockOrder:
    """What one transaction has sent so far.

    Attributes:
        furthest: The greatest lock key of its enqueues.
        settled: Whether it has sent a settlement, or what counts as one, such as a cancel. No enqueue may follow.
    """

    furthest: LockKey | None = None
    settled: bool = False

    def check(self, keys: Iterable[LockKey]) -> None:
        least = min(keys, default=None) if self.settled or self.furthest is not None else None
        if least is None:
            return
        if self.settled:
            raise LockOrderError(
                f"enqueue to {_shown(least)} after a completion, release, retry, bury, cancel, move, redrive or "
                "configuration of the same transaction; enqueue first, or record both on a session, which sorts them; "
                "a redrive is sent at once: call it on an engine",
                sent="completion",
                refused=least,
            )
        if self.furthest is not None and least < self.furthest:
            raise LockOrderError(
                f"enqueue to {_shown(least)} after {_shown(self.furthest)} in the same transaction, "
                "against the lock order; sort them by (queue, channel, key), or enqueue on a session, which does; "
                "schedules.run is sent at once: call it on an engine",
                sent=self.furthest,
                refused=least,
            )

    def advance(self, keys: Iterable[LockKey]) -> None:
        # A generator, since many keys in memory would cost the garbage collector more time.
        self.furthest = max(chain(filter(None, [self.furthest]), keys), default=None)


_lock_orders: WeakKeyDictionary[Transaction, LockOrder] = WeakKeyDictionary()


def lock_order_of(connection: Connection) -> LockOrder:
    """Return the lock order of a connection's transaction; begin a transaction if needed, or raise AutocommitError."""
    return _lock_orders.setdefault(Link(connection).transaction(), LockOrder())


def forget(connection: Connection) -> None:
    """Start the lock order anew on a connection whose session is done, even if an outer transaction goes on.

    If several sessions join one external transaction, each begins an order of its own, although the transaction still
    holds the locks of earlier sessions. So two such transactions can deadlock, which PostgreSQL detects.
    """
    transaction = None if connection.closed else connection.get_transaction()
    if transaction is not None:
        _lock_orders.pop(transaction, None)


@dataclass(slots=True, eq=False)
class Work:
    """The queue work of a transaction, grouped by connection and queue, and within a queue by phase.

    Attributes:
        operations: All operations in the order of the calls; messages of a channel are added in this order.
        ordered: The connections whose lock order this work has advanced.
    """

    connect: Callable[[Target], Connection]
    operations: list[Operation] = field(default_factory=list)
    ordered: set[Connection] = field(default_factory=set)
    _links: dict[Connection, Link] = field(default_factory=dict)
    _shares: dict[tuple[Connection, Target], Share] = field(default_factory=dict)
    # By identity, since two equal targets may be in different databases.
    _by_target: dict[int, Share] = field(default_factory=dict)

    def add(self, operations: Sequence[Operation]) -> None:
        self.operations += operations
        share: Share | None = None
        before: Target | None = None
        for operation in operations:
            target = operation.target
            if share is None or target is not before:
                before, share = target, self._by_target.get(id(target))
            if share is None:
                connection = self.connect(target)
                if (link := self._links.get(connection)) is None:
                    link = self._links[connection] = Link(connection)
                share = self._by_target[id(target)] = self._shares.setdefault((connection, target), Share(link, target))
            share.phases[operation.phase].append(operation)

    def send(self, committing: Connection | None = None) -> list[ReceiptUpdate]:
        """Send all operations in lock order. Return the updates of receipts; call them when the outcome is certain.

        If the work goes to several databases, their queues are locked in one common order too, since no database sees a
        deadlock that spans two of them. *committing*: a connection whose COMMIT follows and may be sent with the work.

        Raises:
            LockOrderError, AutocommitError, SchemaMismatch: Nothing was sent.
            DuplicateMessage: Another message has the key of an enqueue, and *on_duplicate* is "raise" or this work
                cancels that message. If this was the only operation and *committing* is None, nothing was added;
                otherwise roll back.
            ChannelFull: The channel of an enqueue is full, and *on_full* is "raise". Roll back as for DuplicateMessage.
            LeaseLost, UnknownGroup, MessageCancelled: The transaction must be rolled back.
        """
        shares = list(self._shares.values())
        # A single share needs no sort, and rendering the URL for a sort key takes time.
        if len(shares) > 1:
            shares.sort(key=Share.lock_key)
        for link in self._links.values():
            if (order := _lock_orders.get(link.transaction())) is not None:
                order.check(key for share in shares if share.link is link for key in _lock_keys(share))
        groups: dict[Share, Members] = {}
        for share in shares:
            if share.target.schema not in share.link.usable:
                check_installed(share.link.connection, share.target.schema)
            if (members := members_of(share)) is not None:
                groups[share] = members
            if CANCELS in share.phases and len(self.operations) > 1:
                find_named(share)
        updates = None if committing is None else _committed(committing, shares, groups)
        return self._sent(shares, groups) if updates is None else updates

    def _sent(self, shares: Sequence[Share], groups: Mapping[Share, Members]) -> list[ReceiptUpdate]:
        """Send the work in lock order: each part of it for all queues before the next part."""
        phases = set(chain.from_iterable(share.phases for share in shares))
        holds = len(self.operations) > 1 and not phases.isdisjoint(_CONFIGURING)
        updates: list[ReceiptUpdate] = []
        if holds:
            # The locks that changes share with other work come first.
            changes.lock_queues(shares)
            if ENQUEUES not in phases:
                # Channels that are created below take these settings. If the transaction also enqueues, settings are
                # sent after the enqueues, and channels that the enqueues create take the earlier settings.
                updates += changes.send_changes(shares, SETTINGS)
            changes.lock_channels(shares)
        # Messages to lock after the enqueues: those that new limits count, and those that add members to groups.
        leased = {share: changes.leased_messages(share) if holds else [] for share in shares}
        for share in shares:
            members = groups.get(share)
            leased[share] += [] if members is None else members.adding
            updates += self._enqueued(share, members, leased[share])
        if holds or any(leased.values()):
            for share in shares:
                if ids := [*leased[share], *message_ids(share)]:
                    lock_messages(share, ids)
        for members in groups.values():
            members.send_joins()
        if not holds or ENQUEUES in phases:
            updates += changes.send_changes(shares, SETTINGS)
        updates += changes.send_changes(shares, CHANGES)
        updates += changes.send_changes(shares, REMOVALS)
        for share in shares:
            updates += settle_and_cancel(share, alone=len(self.operations) == 1)
        return updates + changes.send_changes(shares, SCHEDULES)

    def _enqueued(self, share: Share, members: Members | None, leased: Sequence[int]) -> list[ReceiptUpdate]:
        connection = share.link.connection
        cancelled = cancelled_messages(share, self.operations)
        updates = run(connection, enqueue_steps(share, members, leased, cancelled))
        self.ordered.add(connection)
        order = lock_order_of(connection)
        order.advance(_lock_keys(share))
        order.settled |= not _SETTLING.isdisjoint(share.phases)
        return updates


def _committed(
    connection: Connection, shares: Sequence[Share], groups: Mapping[Share, Members]
) -> list[ReceiptUpdate] | None:
    """Send work and the COMMIT in one round trip. If that is impossible, send nothing and return None."""
    for share in shares:
        if share.link.connection is not connection or not share.phases.keys() <= _TRAVELLING:
            return None
    # If a member adds members to an existing group, Python must first see that the member's delivery is not lost.
    if (groups and any(members.join for members in groups.values())) or not shares[0].link.can_commit_with():
        return None
    steps: list[Step] = []
    for share in shares:
        steps += enqueue_steps(share, groups.get(share), refusing=True)
    for share in shares:
        if SETTLEMENTS in share.phases:
            steps += settle_steps(share, refusing=True)
    try:
        answers = shares[0].link.commit_with(list(map(_call, steps)))
    except CommitRefused as refused:
        raise steps[refused.index].failure(refused) from refused.__cause__
    updates: list[ReceiptUpdate] = []
    for step, rows in zip(steps, answers, strict=True):
        updates += step.finish(rows)
    return updates


def send(connection: Connection, operations: Sequence[Operation], *, last: bool = False) -> list[ReceiptUpdate]:
    """Send operations in a connection's transaction, as :meth:`Work.send` does.

    *last* says that only the COMMIT follows; it may be sent with the operations. Call ``commit()`` afterwards anyway.
    """
    work = Work(lambda _: connection)
    work.add(operations)
    return work.send(connection if last else None)


def send_alone(connection: Connection, message: EnqueueMessage) -> list[ReceiptUpdate]:
    """Send one enqueue as its own transaction, on a connection where each statement is a transaction."""
    check_installed(connection, message.target.schema)
    share = Share(Link(connection), message.target)
    share.phases[ENQUEUES] = [message]
    updates = run(connection, enqueue_steps(share, None))
    connection.commit()
    return updates


def send_together(connection: Connection, messages: Sequence[EnqueueMessage]) -> list[ReceiptUpdate]:
    """Send enqueues of one queue together in a connection's transaction. If one is refused, none is added."""
    if len(messages) == 1:
        return send(connection, messages)
    Link(connection).transaction()
    with connection.begin_nested():
        return send(connection, messages)


def _lock_keys(share: Share) -> Iterator[LockKey]:
    schema, queue = share.target.schema or "", share.target.queue
    for enqueue in share.phases.get(ENQUEUES, ()):
        yield schema, queue, enqueue.message.channel, enqueue.message.key or ""


def _shown(key: LockKey) -> str:
    schema, queue, channel, message_key = key
    return (
        f"channel {channel!r} of queue {queue!r}"
        + (f" in schema {schema!r}" if schema else "")
        + (f" with key {message_key!r}" if message_key else "")
    )
