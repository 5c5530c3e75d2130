"""Send queue work on a connection, in lock order, one statement a kind. Knows nothing of sessions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.engines import check_driver
from sqlalchemy_fairqueue.errors import LeaseLost, translated
from sqlalchemy_fairqueue.installation import check_installed
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.unit_of_work.adding import add, may_notify
from sqlalchemy_fairqueue.unit_of_work.ledger import Ledger, ledger_of, place
from sqlalchemy_fairqueue.unit_of_work.operations import Cancel, End, EnqueueMessage, Setting, Settle, Verb
from sqlalchemy_fairqueue.unit_of_work.setting import change

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.statements.building import Clause
    from sqlalchemy_fairqueue.unit_of_work.adding import Telling
    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, Target
    from sqlalchemy_fairqueue.values import CancelReceipt
    from sqlalchemy_fairqueue.values.messages import CancelOutcome

# What gives messages back may wake a consumer that sleeps.
_WAKING = (Verb.RETRY, Verb.RELEASE)
_FAILING = (Verb.RETRY, Verb.BURY)
OperationT = TypeVar("OperationT", EnqueueMessage, Setting, End)


def send(connection: Connection, operations: Iterable[Operation]) -> list[Telling]:
    """Send operations on one connection, as :func:`send_placed` does on several."""
    return send_placed([(connection, operation) for operation in operations])


def send_placed(
    placed: Sequence[tuple[Connection, Operation]], recorded: Sequence[tuple[Connection, Operation]] = ()
) -> list[Telling]:
    """Send operations in lock order: enqueues, configuration, then settlements and cancels, queue by queue.

    Args:
        placed: Each with its connection, which is in a transaction or about to begin one; in the order in which they
            were asked for, which messages of a channel keep. The queues of several connections are taken in one order
            too: a deadlock between two databases is one that neither of them sees.
        recorded: Cancels that were asked for before and are sent later.

    Returns:
        What tells the receipts, to be called once the outcome is certain.

    Raises:
        InvalidArgument: A connection is not to PostgreSQL through psycopg; nothing was sent.
        LockOrderError: A transaction has sent something that sorts after one of them; nothing was sent.
        AutocommitError: A connection is in AUTOCOMMIT; nothing was sent.
        SchemaMismatch: The schema of one of them is missing or too old; nothing was sent.
        DuplicateMessage, ChannelFull: From an enqueue that says to raise, or that meets a message whose cancel was
            asked for before. The transaction must be rolled back, unless it was the only operation: then nothing was
            sent.
        LeaseLost: A delivery is not its holder's any more. The transaction must be rolled back.
    """
    enqueues, settings, ended = _sorted_out(placed)
    ledgers: dict[Connection, Ledger] = {}
    for connection in dict.fromkeys(connection for connection, _ in placed):
        check_driver(connection)
        ledgers[connection] = ledger_of(connection)
        ledgers[connection].check(place(enqueue) for where, enqueue in enqueues if where is connection)
    for connection, schema in dict.fromkeys((connection, operation.target.schema) for connection, operation in placed):
        check_installed(connection, schema)

    ends = {(connection, target): group for connection, target, group in _groups(ended)}
    tellings: list[Telling] = []
    for connection, target, added in _groups(enqueues):
        afterwards = ends.get((connection, target), [])
        cancelled: dict[int, int] = {}
        if recorded or any(isinstance(end, Cancel) for end in afterwards):
            cancelled = _cancelled(connection, target, [*recorded, *placed])
        tellings += add(connection, target, added, [end.message_id for end in afterwards], cancelled)
        ledgers[connection].advance(place(enqueue) for enqueue in added)
    for connection, _ in (*settings, *ended):
        ledgers[connection].settled = True
    for connection, target, changes in _groups(settings):
        tellings += change(connection, target, changes)
    for (connection, target), group in ends.items():
        tellings += _end(connection, target, group)
    return tellings


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


def send_alone(connection: Connection, enqueue: EnqueueMessage) -> list[Telling]:
    """Send one enqueue as a transaction of its own, on a connection where each statement is one.

    Raises:
        SchemaMismatch: The schema is missing or too old.
        DuplicateMessage, ChannelFull: It says to raise; nothing was added.
    """
    check_installed(connection, enqueue.target.schema)
    tellings = add(connection, enqueue.target, [enqueue])
    connection.commit()
    return tellings


def _sorted_out(
    placed: Iterable[tuple[Connection, Operation]],
) -> tuple[list[tuple[Connection, EnqueueMessage]], list[tuple[Connection, Setting]], list[tuple[Connection, End]]]:
    enqueues: list[tuple[Connection, EnqueueMessage]] = []
    settings: list[tuple[Connection, Setting]] = []
    ended: list[tuple[Connection, End]] = []
    for connection, operation in placed:
        if isinstance(operation, EnqueueMessage):
            enqueues.append((connection, operation))
        elif isinstance(operation, (Settle, Cancel)):
            ended.append((connection, operation))
        else:
            settings.append((connection, operation))
    return enqueues, settings, ended


def _groups(
    placed: Iterable[tuple[Connection, OperationT]],
) -> Iterable[tuple[Connection, Target, list[OperationT]]]:
    """Operations by queue, in lock order."""
    groups: dict[tuple[Connection, str | None, str], list[OperationT]] = {}
    for connection, operation in placed:
        groups.setdefault((connection, operation.target.schema, operation.target.queue), []).append(operation)

    def order(key: tuple[Connection, str | None, str]) -> tuple[bytes, bytes, str]:
        connection, schema, queue = key
        return (schema or "").encode(), queue.encode(), connection.engine.url.render_as_string()

    # Nearly always there is one, and a URL takes time to write.
    for key in sorted(groups, key=order) if len(groups) > 1 else groups:
        yield key[0], groups[key][0].target, groups[key]


def _end(connection: Connection, target: Target, ends: Sequence[End]) -> list[Telling]:
    """Settle and cancel messages of one queue: all of them are locked in the order of their ids before one changes."""
    settles = [one for one in ends if isinstance(one, Settle)]
    cancels = [one for one in ends if isinstance(one, Cancel)]
    with translated(f"lock {len(ends)} messages of queue {target.queue!r}"):
        if settles and cancels:
            ids = sorted({one.message_id for one in ends})
            connection.execute(statements.hold_messages(target.schema), {"ids": ids})
        elif len({one.verb for one in settles}) > 1:
            ordered = sorted(settles, key=lambda one: one.message_id)
            connection.execute(statements.hold_deliveries(target.schema), _tokens(ordered)).all()
    for verb in Verb:
        if same := [one for one in settles if one.verb is verb]:
            settle(connection, target, verb, same)
    tellings: list[Telling] = [partial(one.delivery.ends.append, one.verb.value) for one in settles]
    return tellings + _cancel(connection, target, cancels) if cancels else tellings


def _cancel(connection: Connection, target: Target, cancels: Sequence[Cancel]) -> list[Telling]:
    with translated(f"cancel messages of queue {target.queue!r}"):
        rows = connection.execute(
            statements.cancel(target.schema),
            {"queue": target.queue, "ids": sorted({cancel.message_id for cancel in cancels})},
        ).all()
    left: dict[int, CancelOutcome] = {row.message_id: row.outcome for row in rows}
    return [partial(_tell, cancel.receipt, left.get(cancel.message_id, "cancelled")) for cancel in cancels]


def _tell(receipt: CancelReceipt, outcome: CancelOutcome) -> None:
    receipt.outcome = outcome


def settle(connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle]) -> None:
    """End deliveries of one queue by one verb, in one statement. One that is asked for twice ends once, as first asked.

    Raises:
        LeaseLost: Some are not their holder's any more; the others are settled, unless the caller rolls back.
    """
    once = {_token(one): one for one in reversed(settles)}
    ordered = sorted(once.values(), key=lambda one: one.delivery.message_id)
    tokens = _tokens(ordered)
    alone = verb is Verb.COMPLETE and len(ordered) == 1
    parameters: dict[str, Any] = {name: values[0] for name, values in tokens.items()} if alone else {**tokens}
    parameters["queue"] = target.queue
    if verb in _WAKING:
        parameters["notify"] = may_notify(connection, (one.target for one in settles))
        parameters["delays"] = [None if one.delay is None else microseconds(one.delay) for one in ordered]
    if verb in _FAILING:
        parameters["errors"] = [one.error for one in ordered]
    clause: Clause
    match verb:
        case Verb.COMPLETE:
            clause = statements.complete(target.schema, alone=alone)
        case Verb.RELEASE:
            clause = statements.release(target.schema)
        case Verb.RETRY:
            clause = statements.retry(target.schema)
        case Verb.BURY:
            clause = statements.bury(target.schema)
            parameters["reasons"] = [one.reason for one in ordered]
    with translated(f"{verb.value} {len(ordered)} deliveries of queue {target.queue!r}"):
        rows = connection.execute(clause, parameters).all()
    if lost := {row.message_id for row in rows if row.outcome == "lost"}:
        first = next(one.delivery for one in ordered if one.delivery.message_id in lost)
        holder = connection.execute(statements.holder(target.schema), {"message_id": first.message_id}).scalar()
        raise LeaseLost(tuple(sorted(lost)), first.lease.id, first.lease.expires_at, holder)


def _token(settle: Settle) -> tuple[int, int, int]:
    delivery = settle.delivery
    return delivery.message_id, delivery.lease.id, delivery.deliveries


def _tokens(settles: Sequence[Settle]) -> dict[str, list[Any]]:
    return {
        "ids": [one.delivery.message_id for one in settles],
        "rows": [one.delivery.row_id for one in settles],
        "lease_ids": [one.delivery.lease.id for one in settles],
        "deliveries": [one.delivery.deliveries for one in settles],
    }
