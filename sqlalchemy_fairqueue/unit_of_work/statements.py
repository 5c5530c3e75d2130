"""Queue work on its way to the server, in lock order, one statement a kind. This module knows nothing of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import check_installed
from sqlalchemy_fairqueue.unit_of_work import locks
from sqlalchemy_fairqueue.unit_of_work.enqueues import enqueue, enqueue_step, members_by_target
from sqlalchemy_fairqueue.unit_of_work.locks import lock_key, lock_order_of
from sqlalchemy_fairqueue.unit_of_work.operations import CHANGE, REMOVAL, SETTING
from sqlalchemy_fairqueue.unit_of_work.settlement import settle_and_cancel, settle_steps
from sqlalchemy_fairqueue.unit_of_work.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.enqueues import Members
    from sqlalchemy_fairqueue.unit_of_work.locks import Configured, LockOrder
    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, Operation, ReceiptUpdate, Settle
    from sqlalchemy_fairqueue.unit_of_work.work import Phases, Where


def send(connection: Connection, operations: Iterable[Operation]) -> list[ReceiptUpdate]:
    """Send operations on one connection, as :func:`send_work` does on several."""
    return send_work(_work(connection, operations))


def send_work(work: Work) -> list[ReceiptUpdate]:
    """Send work in lock order: enqueues, groups, configuration, settlements and cancels, then schedules.

    With configuration, the locks that it shares with other work are taken first (:mod:`.locks`). The queues of several
    connections are taken in one order too: a deadlock between two databases is one that neither of them sees.

    Args:
        work: On connections that are in a transaction or about to begin one.

    Returns:
        Updates of the receipts, to be called once the outcome is certain.

    Raises:
        InvalidArgument: A connection is not to PostgreSQL through a driver that the queue works on; nothing was sent.
        LockOrderError: A transaction has sent something that sorts after one of them; nothing was sent.
        AutocommitError: A connection is in AUTOCOMMIT; nothing was sent.
        SchemaMismatch: The schema of one of them is missing or too old; nothing was sent.
        DuplicateMessage, ChannelFull: From an enqueue that says to raise, or that meets a message whose cancel was
            asked for before. The transaction must be rolled back, unless it was the only operation: then nothing was
            sent.
        LeaseLost: A delivery is not its holder's any more. The transaction must be rolled back.
        UnknownGroup, MessageCancelled: From an enqueue into a group. The transaction must be rolled back.
    """
    phases = work.sorted()
    lock_orders = _checked(work, phases)
    configured: Configured = [
        (where, sorted(((one.locks, one) for one in group), key=lambda change: change[0].order))
        for where, group in phases.configuration
    ]
    stages: tuple[int, ...] = SETTING, CHANGE
    leased: dict[Where, list[int]] = {}
    together = bool(configured) and sum(len(group) for phase in phases for _, group in phase) > 1
    if together:
        locks.lock_settings(configured)
        if not phases.enqueues:
            # Channels that are made now take these settings. With enqueues they keep to the ones that there were.
            _configure(configured, (SETTING,))
            stages = (CHANGE,)
        locks.lock_channels(configured, phases.enqueues)
        leased = locks.leased_messages(configured)
    members = members_by_target(phases, leased)
    updates = _enqueue(work, phases, leased, members)
    for where, messages in phases.enqueues:
        lock_orders[where[0]].advance(map(lock_key, messages))
    for where, _ in (*phases.configuration, *phases.messages):
        lock_orders[where[0]].settled = True
    if together or leased:
        locks.lock_messages(phases.messages, leased)
    for where, joining in members.items():
        updates += joining.count(*where)
    updates += _configure(configured, stages)
    updates += _configure(configured, (REMOVAL,))
    for where, changes in phases.messages:
        updates += settle_and_cancel(*where, changes)
    for (connection, _), schedules in phases.schedules:
        for change in sorted(schedules, key=lambda one: (one.channel.encode(), one.name.encode())):
            change.send(connection)
    return updates


def _enqueue(
    work: Work, phases: Phases, leased: Mapping[Where, list[int]], members: Mapping[Where, Members]
) -> list[ReceiptUpdate]:
    later, updates = dict(phases.messages), []
    for where, messages in phases.enqueues:
        hold = [*leased.get(where, ()), *(change.message_id for change in later.get(where, ()))]
        cancelled = work.cancelled.get(where, {})
        updates += enqueue(*where, messages, hold, cancelled, members=members.get(where))
    return updates


def commit_with(work: Work, connection: Connection) -> list[ReceiptUpdate] | None:
    """Send work in lock order, and COMMIT, in one round trip; return the updates of its receipts.

    None: nothing was sent, for somebody must look at an answer before the COMMIT, or the connection cannot.

    Raises:
        LockOrderError, AutocommitError, SchemaMismatch: As :func:`send_work`; nothing was sent.
        DuplicateMessage, ChannelFull, LeaseLost: The transaction was not committed, and must be rolled back.
    """
    phases = work.sorted()
    if (
        {*work.connections.values()} != {connection}
        or work.cancelled
        or not phases.need_no_answer()
        or not database.can_commit_with(connection)
    ):
        return None
    _checked(work, phases)
    settles = dict(phases.messages)
    members = members_by_target(phases, {})
    # These lock nothing.
    steps = [step for (_, target), joining in members.items() for step in joining.make_steps(target)]
    for where, messages in phases.enqueues:
        hold = [one.message_id for one in settles.get(where, ())]
        steps.append(enqueue_step(*where, messages, hold, counts_members=where in members))
    for where, group in phases.messages:
        steps += settle_steps(*where, cast("list[Settle]", group))
    try:
        answers = database.commit_with(connection, [step.call for step in steps])
    except database.CommitRefused as refused:
        raise steps[refused.index].failure(refused) from refused.__cause__
    return [update for step, rows in zip(steps, answers, strict=True) for update in step.updates(rows)]


def send_last(connection: Connection, operations: Iterable[Operation]) -> list[ReceiptUpdate]:
    """Send operations, at least one, that nothing else follows in the connection's transaction.

    The caller commits it as ever, although they may have travelled with COMMIT.

    Raises:
        FairQueueError: As :func:`send_work`. The transaction must be rolled back.
    """
    work = _work(connection, operations)
    updates = commit_with(work, connection)
    return send_work(work) if updates is None else updates


def send_alone(connection: Connection, message: EnqueueMessage) -> list[ReceiptUpdate]:
    """Send one enqueue as a transaction of its own, on a connection where each statement is one.

    Raises:
        SchemaMismatch: The schema is missing or too old.
        DuplicateMessage, ChannelFull: It says to raise; nothing was added.
    """
    check_installed(connection, message.target.schema)
    updates = enqueue(connection, message.target, [message])
    connection.commit()
    return updates


def send_together(connection: Connection, messages: Sequence[EnqueueMessage]) -> list[ReceiptUpdate]:
    """Send enqueues of one queue at once in a connection's transaction. If one is refused, none is added.

    Raises:
        FairQueueError: As :func:`send_work`; nothing was added, and the transaction is usable.
    """
    if len(messages) == 1:
        return send(connection, messages)
    lock_order_of(connection)
    with connection.begin_nested():
        return send(connection, messages)


def _work(connection: Connection, operations: Iterable[Operation]) -> Work:
    work = Work()
    work.add(operations, lambda _: connection)
    return work


def _checked(work: Work, phases: Phases) -> dict[Connection, LockOrder]:
    """The lock orders of the connections, when all work can be sent on them. It raises as :func:`send_work`."""
    lock_orders: dict[Connection, LockOrder] = {}
    for connection in work.connections.values():
        if connection not in lock_orders:
            lock_orders[connection] = lock_order_of(connection)
    for where, messages in phases.enqueues:
        lock_orders[where[0]].check(messages)
    for phase in phases:
        for (connection, target), _ in phase:
            check_installed(connection, target.schema)
    return lock_orders


def _configure(configured: Configured, stages: tuple[int, ...]) -> list[ReceiptUpdate]:
    return [
        update
        for (connection, _), changes in configured
        for locks, change in changes
        if locks.stage in stages
        for update in change.send(connection)
    ]
