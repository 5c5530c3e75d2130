"""Send queue work on a connection, in lock order, one statement a kind. Knows nothing of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.engines import check_driver
from sqlalchemy_fairqueue.errors import LeaseLost, translated
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from sqlalchemy_fairqueue.unit_of_work.ledger import Ledger, ledger_of, place
from sqlalchemy_fairqueue.unit_of_work.operations import Cancel, Configure, EnqueueMessage, Settle, Target, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, TextClause

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation
    from sqlalchemy_fairqueue.values import ChannelPolicy, Receipt

Outcome = tuple["Receipt", int, bool]
OperationT = TypeVar("OperationT", EnqueueMessage, Configure, Settle, Cancel)


def send(connection: Connection, operations: Iterable[Operation]) -> list[Outcome]:
    """Send operations on one connection, as :func:`send_placed` does on several."""
    return send_placed([(connection, operation) for operation in operations])


def send_placed(placed: Sequence[tuple[Connection, Operation]]) -> list[Outcome]:
    """Send operations in lock order: enqueues, configuration, then settlements and cancels by message id.

    Args:
        placed: Each with its connection, which is in a transaction or about to begin one; in the order in which they
            were asked for, which messages of a channel keep. The queues of several connections are taken in one order
            too: a deadlock between two databases is one that neither of them sees.

    Returns:
        What became of each enqueue: its receipt, the message's id, and whether a message was added.

    Raises:
        InvalidArgument: A connection is not to PostgreSQL through psycopg; nothing was sent.
        LockOrderError: A transaction has sent something that sorts after one of them; nothing was sent.
        AutocommitError: A connection is in AUTOCOMMIT; nothing was sent.
        LeaseLost: A delivery is not its holder's any more. The transaction must be rolled back.
    """
    enqueues = _of(EnqueueMessage, placed)
    ledgers: dict[Connection, Ledger] = {}
    for connection in dict.fromkeys(connection for connection, _ in placed):
        check_driver(connection)
        ledgers[connection] = ledger_of(connection)
        ledgers[connection].check(place(enqueue) for where, enqueue in enqueues if where is connection)

    outcomes: list[Outcome] = []
    for connection, target, group in _groups(enqueues):
        outcomes += _enqueue(connection, target, group)
        ledgers[connection].advance(place(enqueue) for enqueue in group)
    for connection, operation in placed:
        ledgers[connection].settled |= not isinstance(operation, EnqueueMessage)
    for connection, target, configures in _groups(_of(Configure, placed)):
        for configure in sorted(configures, key=lambda one: (one.channel or "").encode()):
            _configure(connection, target, configure)
    _settle_all(_of(Settle, placed))
    for connection, target, cancels in _groups(_of(Cancel, placed)):
        _cancel(connection, target, cancels)
    return outcomes


def _of(kind: type[OperationT], placed: Sequence[tuple[Connection, Operation]]) -> list[tuple[Connection, OperationT]]:
    return [(connection, operation) for connection, operation in placed if isinstance(operation, kind)]


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

    for key in sorted(groups, key=order):
        yield key[0], groups[key][0].target, groups[key]


def _enqueue(connection: Connection, target: Target, enqueues: Sequence[EnqueueMessage]) -> list[Outcome]:
    messages = [enqueue.message for enqueue in enqueues]
    with translated(f"enqueue {len(messages)} messages to queue {target.queue!r}"):
        rows = connection.execute(
            statements.enqueue(target.schema),
            {
                "queue": target.queue,
                "channels": [message.channel for message in messages],
                "kinds": [message.kind for message in messages],
                "contents": [enqueue.content for enqueue in enqueues],
                "headers": [enqueue.headers for enqueue in enqueues],
                "delays": [None if message.delay is None else microseconds(message.delay) for message in messages],
                "ats": [None if message.at is None else instant_microseconds(message.at) for message in messages],
                "priorities": [message.priority for message in messages],
                "keys": [message.key for message in messages],
                "max_attempts": [enqueue.max_attempts for enqueue in enqueues],
                **_policy(enqueues[0].policy),
            },
        ).all()
    return [(enqueues[row.ordinal - 1].receipt, row.message_id, row.created) for row in rows]


def _configure(connection: Connection, target: Target, configure: Configure) -> None:
    parameters: dict[str, Any] = {"queue": target.queue, **_policy(configure.policy)}
    if configure.channel is None:
        with translated(f"configure queue {target.queue!r}"):
            connection.execute(statements.configure_queue(target.schema), parameters)
    else:
        with translated(f"configure channel {configure.channel!r} of queue {target.queue!r}"):
            connection.execute(
                statements.configure_channel(target.schema), {**parameters, "channel": configure.channel}
            )


def _policy(policy: ChannelPolicy) -> dict[str, int | None]:
    return {
        "max_concurrency": policy.max_concurrency,
        "release_interval": microseconds(policy.release_interval),
        "release_burst": policy.release_burst,
        "weight": policy.weight,
    }


def _cancel(connection: Connection, target: Target, cancels: Sequence[Cancel]) -> None:
    with translated(f"cancel messages of queue {target.queue!r}"):
        connection.execute(
            statements.cancel(target.schema),
            {"queue": target.queue, "ids": sorted(cancel.message_id for cancel in cancels)},
        ).all()


def _settle_all(placed: Sequence[tuple[Connection, Settle]]) -> None:
    if len({operation.verb for _, operation in placed}) > 1:
        # The messages of several verbs are locked in the order of their ids before the first verb changes any.
        for connection, target, group in _groups(placed):
            ordered = sorted(group, key=lambda one: one.delivery.message_id)
            with translated(f"lock {len(ordered)} deliveries of queue {target.queue!r}"):
                connection.execute(statements.hold_deliveries(target.schema), _tokens(ordered)).all()
    for connection, target, group in _groups(placed):
        for verb in Verb:
            if same := [operation for operation in group if operation.verb is verb]:
                settle(connection, target, verb, same)


def settle(connection: Connection, target: Target, verb: Verb, settles: Sequence[Settle]) -> None:
    """End deliveries of one queue by one verb, in one statement.

    Raises:
        LeaseLost: Some are not their holder's any more; the others are settled, unless the caller rolls back.
    """
    ordered = sorted(settles, key=lambda one: one.delivery.message_id)
    parameters: dict[str, Any] = {"queue": target.queue, **_tokens(ordered)}
    delays = [None if one.delay is None else microseconds(one.delay) for one in ordered]
    errors = [one.error for one in ordered]
    clause: TextClause
    match verb:
        case Verb.COMPLETE:
            clause = statements.complete(target.schema)
        case Verb.RELEASE:
            clause = statements.release(target.schema)
            parameters |= {"delays": delays}
        case Verb.RETRY:
            clause = statements.retry(target.schema)
            parameters |= {"delays": delays, "errors": errors}
        case Verb.BURY:
            clause = statements.bury(target.schema)
            parameters |= {"reasons": [one.reason for one in ordered], "errors": errors}
    with translated(f"{verb.value} {len(ordered)} deliveries of queue {target.queue!r}"):
        rows = connection.execute(clause, parameters).all()
    if lost := {row.message_id for row in rows if row.outcome == "lost"}:
        first = next(one.delivery for one in ordered if one.delivery.message_id in lost)
        holder = connection.execute(statements.holder(target.schema), {"message_id": first.message_id}).scalar()
        raise LeaseLost(tuple(sorted(lost)), first.lease.id, first.lease.expires_at, holder)


def _tokens(settles: Sequence[Settle]) -> dict[str, list[Any]]:
    return {
        "ids": [one.delivery.message_id for one in settles],
        "rows": [one.delivery.row_id for one in settles],
        "lease_ids": [one.delivery.lease.id for one in settles],
        "deliveries": [one.delivery.deliveries for one in settles],
    }
