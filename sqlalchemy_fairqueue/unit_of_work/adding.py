"""Send the enqueues of one queue, and know what became of each."""

from __future__ import annotations

import re
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import TwoPhaseTransaction

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import ChannelFull, DuplicateMessage, translated
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, Target
    from sqlalchemy_fairqueue.values import ChannelPolicy, Receipt
    from sqlalchemy_fairqueue.values.messages import EnqueueOutcome

    Telling = Callable[[], None]
    """Tells a receipt what became of its operation, once that is certain."""


_needs_no_quotes = re.compile(r"(?!null\Z)[\w.:@/-]+", re.ASCII | re.IGNORECASE).fullmatch


def add(
    connection: Connection,
    target: Target,
    enqueues: Sequence[EnqueueMessage],
    later: Sequence[int] = (),
    cancelled: Mapping[int, int] = MappingProxyType({}),
) -> list[Telling]:
    """Add messages to one queue, in one statement.

    Args:
        connection: In a transaction.
        target: The queue.
        enqueues: What to add.
        later: The queue's messages that the transaction ends or cancels afterwards. Where messages are replaced, all of
            them are locked in one order.
        cancelled: Of these the ones that it cancels, each with how many of *enqueues* were asked for before that.

    Raises:
        DuplicateMessage: A key stood already, and the enqueue said to raise. That message was not added. Or a message
            that it met is cancelled, as was asked before.
        ChannelFull: A channel is full, and its policy says to raise. That message was not added.
    """
    columns = [_column_values(enqueue) for enqueue in enqueues]
    alone = len(columns) == 1
    parameters = columns[0]
    if not alone:
        parameters = {name: _array([one[name] for one in columns]) for name in columns[0]}
    parameters["queue"] = target.queue
    parameters |= policy_parameters(enqueues[0].policy)
    parameters["notify"] = may_notify(connection, (enqueue.target for enqueue in enqueues))
    replacing = later and any(enqueue.message.on_duplicate == "replace" for enqueue in enqueues)
    parameters["hold"] = sorted(later) if replacing else None
    with translated(f"enqueue {len(enqueues)} messages to queue {target.queue!r}"):
        rows = connection.execute(statements.enqueue(target.schema, alone=alone), parameters).all()
    tellings: list[Telling] = []
    for row in rows:
        enqueue = enqueues[row.ordinal - 1]
        outcome = row.outcome
        if outcome == "full":
            raise _full(connection, target, enqueue.message.channel)
        if outcome in {"duplicate", "replaced"}:
            is_cancelled = row.ordinal > cancelled.get(row.message_id, len(enqueues))
            if is_cancelled or (outcome == "duplicate" and enqueue.message.on_duplicate == "raise"):
                key = cast("str", enqueue.message.key)
                raise DuplicateMessage(enqueue.message.channel, key, row.message_id, is_cancelled)
        tellings.append(partial(_tell, enqueue.receipt, row.message_id, row.created, outcome))
    return tellings


def _column_values(enqueue: EnqueueMessage) -> dict[str, Any]:
    """A message as the function takes it: what stands in each of its arrays."""
    message = enqueue.message
    return {
        "channels": message.channel,
        "kinds": message.kind,
        "contents": enqueue.content,
        "headers": enqueue.headers,
        "delays": None if message.delay is None else microseconds(message.delay),
        "ats": None if message.at is None else instant_microseconds(message.at),
        "priorities": message.priority,
        "keys": message.key,
        "max_attempts": enqueue.max_attempts,
        "on_duplicates": message.on_duplicate,
    }


def _array(values: list[Any]) -> list[Any] | str:
    """A column of messages, as PostgreSQL writes it where nothing needs quotes: the driver's way takes ten times that.

    Lists come back as they are: the driver sends them.
    """
    if isinstance(values[0], bytes):
        return values
    words: dict[Any, str] = {}
    for value in set(values):
        if value is None:
            words[value] = "null"
        elif type(value) is int or (type(value) is str and _needs_no_quotes(value)):
            words[value] = str(value)
        else:
            return values
    return f"{{{','.join(map(words.__getitem__, values))}}}"


def may_notify(connection: Connection, targets: Iterable[Target]) -> bool:
    """Whether the transaction may wake consumers: PREPARE TRANSACTION refuses one that has notified."""
    return not isinstance(connection.get_transaction(), TwoPhaseTransaction) and all(
        target.notify for target in targets
    )


def policy_parameters(policy: ChannelPolicy) -> dict[str, int | None]:
    """A policy as the functions take it."""
    return {
        "max_concurrency": policy.max_concurrency,
        "release_interval": microseconds(policy.release_interval),
        "release_burst": policy.release_burst,
        "weight": policy.weight,
        "max_backlog": policy.max_backlog,
        "drop_when_full": policy.on_full == "drop",
    }


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
