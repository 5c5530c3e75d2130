"""Work that is sent together with the COMMIT of its session, in one round trip, where the driver can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.unit_of_work.enqueues import enqueue_step
from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, Settle
from sqlalchemy_fairqueue.unit_of_work.phases import by_queue
from sqlalchemy_fairqueue.unit_of_work.settlement import settle_steps
from sqlalchemy_fairqueue.unit_of_work.statements import by_kind, checked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, ReceiptUpdate
    from sqlalchemy_fairqueue.unit_of_work.steps import Step


def can_commit_with(connection: Connection, routed: Sequence[tuple[Connection, Operation]]) -> bool:
    """Whether operations, at least one, can travel with the connection's COMMIT.

    Nobody must have to look at an answer before the COMMIT but the server: enqueues and settlements only.
    """
    return all(
        where is connection and _needs_no_answer(operation) for where, operation in routed
    ) and database.can_commit_with(connection)


def _needs_no_answer(operation: Operation) -> bool:
    # What is added to a group is counted by what was created.
    return isinstance(operation, Settle) or (isinstance(operation, EnqueueMessage) and operation.group_id is None)


def commit_with(routed: Sequence[tuple[Connection, Operation]]) -> list[ReceiptUpdate]:
    """Send operations in lock order, and COMMIT, in one round trip; return the updates of their receipts.

    :func:`can_commit_with` has said so.

    Raises:
        LockOrderError, AutocommitError, SchemaMismatch: As ``send_routed``; nothing was sent.
        DuplicateMessage, ChannelFull, LeaseLost: The transaction was not committed, and must be rolled back.
    """
    connection = routed[0][0]
    enqueues, _, _, changes, _ = by_kind(routed)
    checked(routed, enqueues)
    settles = {target: [one for one in group if isinstance(one, Settle)] for _, target, group in by_queue(changes)}
    steps: list[Step] = []
    for _, target, messages in by_queue(enqueues):
        later = [one.message_id for one in settles.get(target, ())]
        steps.append(enqueue_step(connection, target, messages, later))
    for target, group in settles.items():
        steps += settle_steps(connection, target, group)
    try:
        answers = database.commit_with(connection, [step.call for step in steps])
    except database.CommitRefused as refused:
        raise steps[refused.index].failure(refused) from refused.__cause__
    return [update for step, rows in zip(steps, answers, strict=True) for update in step.updates(rows)]
