"""Statements of queue work on a connection, in lock order, one a kind. This module knows nothing of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue.database import check_installed
from sqlalchemy_fairqueue.database.drivers import check_driver
from sqlalchemy_fairqueue.unit_of_work import phases
from sqlalchemy_fairqueue.unit_of_work.administration import change_schedules, configure, removals, settings_of_queues
from sqlalchemy_fairqueue.unit_of_work.enqueues import enqueue
from sqlalchemy_fairqueue.unit_of_work.groups import members_by_target
from sqlalchemy_fairqueue.unit_of_work.lock_order import LockOrder, lock_key, lock_order_of
from sqlalchemy_fairqueue.unit_of_work.operations import (
    Cancel,
    Configuration,
    EnqueueMessage,
    MakeGroup,
    MessageChange,
    PauseSchedule,
    RemoveSchedule,
    ScheduleChange,
    SetSchedule,
    Settle,
)
from sqlalchemy_fairqueue.unit_of_work.phases import by_queue
from sqlalchemy_fairqueue.unit_of_work.settlement import settle_and_cancel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, ReceiptUpdate, Target


def send(connection: Connection, operations: Iterable[Operation]) -> list[ReceiptUpdate]:
    """Send operations on one connection, as :func:`send_routed` does on several."""
    return send_routed([(connection, operation) for operation in operations])


def send_routed(routed: Sequence[tuple[Connection, Operation]]) -> list[ReceiptUpdate]:
    """Send operations in lock order: enqueues, configuration, settlements and cancels, then schedules, queue by queue.

    With configuration, the locks that it shares with other work are taken first (:mod:`.phases`).

    Args:
        routed: Each with its connection, which is in a transaction or about to begin one; in the order in which they
            were asked for, which messages of a channel keep. The queues of several connections are taken in one order
            too: a deadlock between two databases is one that neither of them sees.

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
    enqueues, groups, configurations, changes, schedules = by_kind(routed)
    lock_orders = checked(routed, enqueues)
    several = bool(configurations) and len(routed) > 1
    leased: dict[phases.ConnectedTarget, list[int]] = {}
    if several:
        configurations, leased = _hold(configurations, enqueues)
    members = members_by_target(enqueues, groups, leased)
    later = {(connection, target): group for connection, target, group in by_queue(changes)}
    updates: list[ReceiptUpdate] = []
    for connection, target, messages in by_queue(enqueues):
        afterwards = later.get((connection, target), [])
        cancelled: dict[int, int] = {}
        if any(isinstance(change, Cancel) for change in afterwards):
            cancelled = _cancelled(connection, target, routed)
        hold = [*leased.get((connection, target), ()), *(change.message_id for change in afterwards)]
        updates += enqueue(connection, target, messages, hold, cancelled, members=members.get((connection, target)))
        lock_orders[connection].advance(lock_key(one) for one in messages)
    _note_settled(routed, lock_orders)
    if several or leased:
        phases.lock_messages(changes, leased)
    for (connection, target), joining in members.items():
        updates += joining.count(connection, target)
    configurations, removed = removals(configurations)
    for connection, target, group in [*by_queue(configurations), *by_queue(removed)]:
        updates += configure(connection, target, group)
    for (connection, target), afterwards in later.items():
        updates += settle_and_cancel(connection, target, afterwards)
    for connection, target, of_queue in by_queue(schedules):
        change_schedules(connection, target, of_queue)
    return updates


def _note_settled(routed: Iterable[tuple[Connection, Operation]], lock_orders: Mapping[Connection, LockOrder]) -> None:
    for connection, operation in routed:
        if not isinstance(operation, (EnqueueMessage, MakeGroup, SetSchedule, RemoveSchedule, PauseSchedule)):
            lock_orders[connection].settled = True


def checked(
    routed: Sequence[tuple[Connection, Operation]], enqueues: Sequence[tuple[Connection, EnqueueMessage]]
) -> dict[Connection, LockOrder]:
    """The lock orders of the connections, when all operations can be sent on them. It raises as :func:`send_routed`."""
    lock_orders: dict[Connection, LockOrder] = {}
    for connection in dict.fromkeys(connection for connection, _ in routed):
        check_driver(connection)
        lock_orders[connection] = lock_order_of(connection)
        lock_orders[connection].check(lock_key(one) for where, one in enqueues if where is connection)
    for connection, schema in dict.fromkeys((connection, operation.target.schema) for connection, operation in routed):
        check_installed(connection, schema)
    return lock_orders


def _hold(
    configurations: list[tuple[Connection, Configuration]], enqueues: Sequence[tuple[Connection, EnqueueMessage]]
) -> tuple[list[tuple[Connection, Configuration]], dict[phases.ConnectedTarget, list[int]]]:
    """Take the locks that configurations share with other work.

    Returns:
        The configurations that are still to be sent, and the messages by queue that they will lock to count them.
    """
    phases.lock_queues(configurations)
    phases.lock_plans(configurations)
    if not enqueues:
        # Channels that are made now take these settings. With enqueues they keep to the ones that there were.
        own, configurations = settings_of_queues(configurations)
        for connection, target, group in by_queue(own):
            configure(connection, target, group)
    phases.lock_channels(configurations, enqueues)
    return configurations, phases.leased_messages(configurations)


def _cancelled(connection: Connection, target: Target, asked: Iterable[tuple[Connection, Operation]]) -> dict[int, int]:
    """The messages of a queue to cancel, each with how many of its enqueues were asked for before."""
    found: dict[int, int] = {}
    before = 0
    for where, operation in asked:
        if where is connection and operation.target == target:
            if isinstance(operation, EnqueueMessage):
                before += 1
            elif isinstance(operation, Cancel):
                found.setdefault(operation.message_id, before)
    return found


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
        FairQueueError: As :func:`send_routed`; nothing was added, and the transaction is usable.
    """
    if len(messages) == 1:
        return send(connection, messages)
    check_driver(connection)
    lock_order_of(connection)
    with connection.begin_nested():
        return send(connection, messages)


def by_kind(
    routed: Sequence[tuple[Connection, Operation]],
) -> tuple[
    list[tuple[Connection, EnqueueMessage]],
    list[tuple[Connection, MakeGroup]],
    list[tuple[Connection, Configuration]],
    list[tuple[Connection, MessageChange]],
    list[tuple[Connection, ScheduleChange]],
]:
    """Operations by kind: enqueues, groups, configuration, settlements and cancels, schedules."""
    # The pairs as they are: another one for each of many messages is work for the garbage collector.
    enqueues = cast(
        "list[tuple[Connection, EnqueueMessage]]", [one for one in routed if isinstance(one[1], EnqueueMessage)]
    )
    groups: list[tuple[Connection, MakeGroup]] = []
    configurations: list[tuple[Connection, Configuration]] = []
    changes: list[tuple[Connection, MessageChange]] = []
    schedules: list[tuple[Connection, ScheduleChange]] = []
    for connection, operation in () if len(enqueues) == len(routed) else routed:
        if isinstance(operation, EnqueueMessage):
            continue
        if isinstance(operation, MakeGroup):
            groups.append((connection, operation))
        elif isinstance(operation, (Settle, Cancel)):
            changes.append((connection, operation))
        elif isinstance(operation, (SetSchedule, RemoveSchedule, PauseSchedule)):
            schedules.append((connection, operation))
        else:
            configurations.append((connection, operation))
    return enqueues, groups, configurations, changes, schedules
