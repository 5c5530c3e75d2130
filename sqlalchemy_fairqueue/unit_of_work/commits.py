"""Work that is sent together with the COMMIT of its session, in one round trip, where the driver can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.unit_of_work.enqueues import enqueue_step
from sqlalchemy_fairqueue.unit_of_work.groups import members_by_target
from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, MakeGroup, Settle
from sqlalchemy_fairqueue.unit_of_work.phases import by_queue
from sqlalchemy_fairqueue.unit_of_work.settlement import settle_steps
from sqlalchemy_fairqueue.unit_of_work.statements import by_kind, checked, send_routed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, ReceiptUpdate


def can_commit_with(connection: Connection, routed: Sequence[tuple[Connection, Operation]]) -> bool:
    """Whether operations, at least one, can travel with the connection's COMMIT.

    Nobody must have to look at an answer before the COMMIT but the server: enqueues, groups and settlements only.
    """
    return _need_no_answer(connection, routed) and database.can_commit_with(connection)


def _need_no_answer(connection: Connection, routed: Sequence[tuple[Connection, Operation]]) -> bool:
    # The server counts the members of a group that is made here, which comes before them. Others are added by a member,
    # whose delivery must not have been lost.
    made: set[UUID | None] = {None}
    before: UUID | None = None
    for where, operation in routed:
        if where is not connection:
            return False
        if isinstance(operation, EnqueueMessage):
            # Those that were added together have the same object, which is compared at less cost than it is hashed.
            if operation.group_id is not before:
                before = operation.group_id
                if before not in made:
                    return False
        elif isinstance(operation, MakeGroup):
            made.add(operation.group_id)
        elif not isinstance(operation, Settle):
            return False
    return True


def send_last(connection: Connection, operations: Sequence[Operation]) -> list[ReceiptUpdate]:
    """Send operations, at least one, that nothing else follows in the connection's transaction.

    The caller commits it as ever, although they may have travelled with COMMIT.

    Raises:
        FairQueueError: As ``send_routed``. The transaction must be rolled back.
    """
    routed = [(connection, operation) for operation in operations]
    return commit_with(routed) if can_commit_with(connection, routed) else send_routed(routed)


def commit_with(routed: Sequence[tuple[Connection, Operation]]) -> list[ReceiptUpdate]:
    """Send operations in lock order, and COMMIT, in one round trip; return the updates of their receipts.

    :func:`can_commit_with` has said so.

    Raises:
        LockOrderError, AutocommitError, SchemaMismatch: As ``send_routed``; nothing was sent.
        DuplicateMessage, ChannelFull, LeaseLost: The transaction was not committed, and must be rolled back.
    """
    connection = routed[0][0]
    enqueues, groups, _, changes, _ = by_kind(routed)
    checked(routed, enqueues)
    settles = {target: [one for one in group if isinstance(one, Settle)] for _, target, group in by_queue(changes)}
    members = members_by_target(enqueues, groups, {})
    # These lock nothing.
    steps = [step for (_, target), joining in members.items() for step in joining.make_steps(target)]
    for _, target, messages in by_queue(enqueues):
        later = [one.message_id for one in settles.get(target, ())]
        counts_members = (connection, target) in members
        steps.append(enqueue_step(connection, target, messages, later, counts_members=counts_members))
    for target, group in settles.items():
        steps += settle_steps(connection, target, group)
    try:
        answers = database.commit_with(connection, [step.call for step in steps])
    except database.CommitRefused as refused:
        raise steps[refused.index].failure(refused) from refused.__cause__
    return [update for step, rows in zip(steps, answers, strict=True) for update in step.updates(rows)]
