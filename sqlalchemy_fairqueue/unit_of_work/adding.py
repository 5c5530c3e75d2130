"""Send the enqueues of one queue, and know what became of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import TwoPhaseTransaction

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import ChannelFull, DuplicateMessage, translated
from sqlalchemy_fairqueue.installation import calling, version_of
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, Target
    from sqlalchemy_fairqueue.values import ChannelPolicy, Receipt
    from sqlalchemy_fairqueue.values.messages import EnqueueOutcome

    Telling = Callable[[], None]
    """Tells a receipt what became of its operation, once that is certain."""


def add(
    connection: Connection, target: Target, enqueues: Sequence[EnqueueMessage], later: Sequence[int] = ()
) -> list[Telling]:
    """Add messages to one queue, in one statement.

    Args:
        connection: In a transaction.
        target: The queue.
        enqueues: What to add.
        later: The queue's messages that the transaction ends or cancels afterwards. Where messages are replaced, all of
            them are locked in one order.

    Raises:
        DuplicateMessage: A key stood already, and the enqueue said to raise. That message was not added.
        ChannelFull: A channel is full, and its policy says to raise. That message was not added.
    """
    version = version_of(connection, target.schema)
    messages = [enqueue.message for enqueue in enqueues]
    parameters: dict[str, Any] = {
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
        **policy_parameters(enqueues[0].policy, version),
    }
    if version > 1:
        parameters["on_duplicates"] = [message.on_duplicate for message in messages]
        parameters["notify"] = may_notify(connection, (enqueue.target for enqueue in enqueues))
        replacing = any(message.on_duplicate == "replace" for message in messages)
        parameters["hold"] = sorted(later) if replacing and later else None
    with calling(connection, target.schema, f"enqueue {len(messages)} messages to queue {target.queue!r}"):
        rows = connection.execute(statements.enqueue(target.schema, version), parameters).all()
    tellings: list[Telling] = []
    for row in rows:
        enqueue = enqueues[row.ordinal - 1]
        outcome: Any = row.outcome if version > 1 else "created" if row.created else "duplicate"
        if outcome == "full":
            raise _full(connection, target, enqueue.message.channel)
        if outcome == "duplicate" and enqueue.message.on_duplicate == "raise":
            raise DuplicateMessage(enqueue.message.channel, cast("str", enqueue.message.key), row.message_id)
        tellings.append(partial(_tell, enqueue.receipt, row.message_id, row.created, outcome))
    return tellings


def may_notify(connection: Connection, targets: Iterable[Target]) -> bool:
    """Whether the transaction may wake consumers: PREPARE TRANSACTION refuses one that has notified."""
    return not isinstance(connection.get_transaction(), TwoPhaseTransaction) and all(
        target.notify for target in targets
    )


def policy_parameters(policy: ChannelPolicy, version: int) -> dict[str, int | None]:
    """A policy as the functions of a version take it."""
    parameters: dict[str, int | None] = {
        "max_concurrency": policy.max_concurrency,
        "release_interval": microseconds(policy.release_interval),
        "release_burst": policy.release_burst,
        "weight": policy.weight,
    }
    if version > 1:
        parameters |= {"max_backlog": policy.max_backlog, "drop_when_full": policy.on_full == "drop"}
    return parameters


def _tell(receipt: Receipt, message_id: int | None, created: bool, outcome: EnqueueOutcome) -> None:  # noqa: FBT001 - a row's columns
    receipt.message_id = message_id
    receipt.created = created
    receipt.outcome = outcome


def _full(connection: Connection, target: Target, channel: str) -> ChannelFull:
    with translated(f"look at channel {channel!r} of queue {target.queue!r}"):
        most = connection.execute(
            statements.max_backlog(target.schema), {"queue": target.queue, "channel": channel}
        ).scalar()
    limit = "" if most is None else f" of {most}"
    return ChannelFull(
        f"channel {channel!r} of queue {target.queue!r} has reached its max_backlog{limit} undelivered messages; "
        "try again when consumers have taken some, or configure the channel with another max_backlog or on_full='drop'",
        channel,
        most,
    )
