"""Calls for consumers: dequeue messages under a lease, extend the lease, settle the deliveries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.codecs import Codec, decoded, headers_of
from sqlalchemy_fairqueue.database.calls import Call, Shape, Target, argument, call
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.times import duration, instant, microseconds
from sqlalchemy_fairqueue.values.messages import Delivery, Lease, Undecoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection


LONGEST_WAIT = timedelta(seconds=61)
"""The longest time for which a worker registers a wait."""

# Classes of SQLSTATE: data exceptions, violated constraints, exceeded program limits, and corrupt rows.
_ABOUT_DATA = ("22", "23", "54", "XX")
_TOKEN = ("ids", "rows", "lease_ids", "deliveries")
# Numbers come in one array, since each column of a result costs the client about 2 us. A row has the numbers of a
# message; the last row has the numbers of the call.
_OF_MESSAGE = (
    "array[message_id, enqueued_at, cast(attempt as bigint), cast(max_attempts as bigint), cast(deliveries as bigint)]"
)
_NUMBERS = (
    f"case when message_id is not null then {_OF_MESSAGE}"
    " else array[lease_id, lease_expires_at, due_in, cast(cast(holds_slots as integer) as bigint),"
    " cast(cast(is_timed as integer) as bigint), cast(cast(keeps_results as integer) as bigint),"
    " cast(cast(is_held as integer) as bigint)] end as numbers"
)
_TEXTS = (
    # As text, since psycopg reads no binary tid.
    "cast(row_id as text) as row_id",
    # Headers come as text, and texts as bytes: one message with headers that the driver cannot read, or a text outside
    # of the connection's encoding, would otherwise fail the whole batch.
    "pg_catalog.convert_to(channel, 'UTF8') as channel",
    "pg_catalog.convert_to(kind, 'UTF8') as kind",
    "content",
    "pg_catalog.convert_to(cast(headers as text), 'UTF8') as headers",
    "pg_catalog.convert_to(ordering_key, 'UTF8') as ordering_key",
)
_DEQUEUE = Shape((_NUMBERS, *_TEXTS))
_TAKE_MORE = Shape((f"{_OF_MESSAGE} as numbers", *_TEXTS))
_HEAR = Shape(("has_more",))
_LOCK = Shape(("message_id",))

_new, _set = object.__new__, object.__setattr__

SettlementVerb = Literal["complete", "retry", "release", "bury"]
_OUTCOMES: dict[SettlementVerb, str] = {"retry": "retried", "release": "released", "bury": "buried"}


class Token(NamedTuple):
    """The fencing token of a delivery: SQL functions settle it only while the token is valid."""

    message_id: int
    row_id: str
    lease_id: int
    deliveries: int


def token_of(delivery: Delivery) -> Token:
    return Token(delivery.message_id, delivery.row_id, delivery.lease.id, delivery.deliveries)


@dataclass(frozen=True, slots=True)
class Dequeued:
    """The answer of a dequeue.

    Attributes:
        rows: The rows of the messages that were taken, in fair order; :func:`delivered` reads these rows.
        lease: The lease of these messages; None if nothing was taken.
        lease_id: The id of a lease that the next dequeue may use, even if nothing was taken; None if there is none.
        shared: The fields that all the deliveries have in common: the queue, whether they may hold slots of a limit,
            whether the queue is fair by seconds (``is_timed``), and whether results are kept.
        is_held: Whether something is due that other transactions have locked. It is not about ordering keys.
        due_in: How long until something else may be due; None if nothing is known to become due by itself.
    """

    rows: Sequence[Sequence[Any]]
    lease: Lease | None
    lease_id: int | None
    shared: dict[str, Any]
    is_held: bool
    due_in: timedelta | None


class ExtendedLease(NamedTuple):
    """A lease after a heartbeat: its new end, or None if the lease is lost, and the cancelled messages under it."""

    lease_id: int
    expires_at: datetime | None
    cancelled: list[int]


class SetAside(NamedTuple):
    """A message or a channel that was set aside because dequeues could not handle it.

    Attributes:
        message_id: The message; None if the channel was set aside, because its state row could not be updated.
        outcome: "dead" if the message became a dead letter; "paused" if the channel was paused.
    """

    message_id: int | None
    channel_id: int
    outcome: str
    reason: str


class EncodedResult(NamedTuple):
    """The encoded result of a completed message (None if the handler returned None), or why it cannot be kept."""

    content: bytes | None = None
    problem: str | None = None


def take_messages(
    connection: Connection,
    target: Target,
    *,
    limit: int,
    lease: timedelta,
    consumer: str,
    lease_id: int | None,
    max_bytes: int | None = None,
) -> Dequeued:
    """Take ready messages, if possible under *lease_id*. Call it in a READ COMMITTED transaction of its own."""
    *rows, about = target.call(
        "fq_dequeue",
        "dequeue from",
        _DEQUEUE,
        limit=limit,
        lease=lease,
        consumer=consumer,
        lease_id=lease_id,
        max_bytes=max_bytes,
    ).tuples(connection, as_bytes=True)
    used_lease_id, expires_at, due_in, holds_slots, is_timed, keeps_results, is_held = about[0]
    return Dequeued(
        rows=rows,
        lease=Lease(used_lease_id, consumer, instant(expires_at)) if rows else None,
        lease_id=used_lease_id,
        shared={
            "queue": target.queue,
            "holds_slot": holds_slots == 1,
            "is_timed": is_timed == 1,
            "keeps_result": keeps_results == 1,
        },
        is_held=is_held == 1,
        due_in=None if due_in is None else duration(due_in),
    )


def take_more(
    connection: Connection, target: Target, first: Token, *, limit: int, max_cost: int | None, max_bytes: int | None
) -> Sequence[Sequence[Any]]:
    """Take messages of the same kind that follow *first* in its channel, under its lease, and return their rows."""
    return target.call(
        "fq_take_more",
        f"take what follows message {first.message_id} of",
        _TAKE_MORE,
        message_id=first.message_id,
        lease_id=first.lease_id,
        deliveries=first.deliveries,
        limit=limit,
        max_cost=max_cost,
        max_bytes=max_bytes,
    ).tuples(connection, as_bytes=True)


def delivered(
    rows: Sequence[Sequence[Any]], codec: Codec, shared: Mapping[str, Any]
) -> tuple[list[Delivery], list[tuple[int, str]]]:
    """Return the deliveries of taken messages, and the ids of messages that cannot be read, each with the problem."""
    deliveries: list[Delivery] = []
    unreadable: list[tuple[int, str]] = []
    # Copied and filled in for each delivery, since dicts that grow take twice as long.
    blank = {**dict.fromkeys(Delivery.__dataclass_fields__), **shared, "decoded": Undecoded(partial(decoded, codec))}
    for numbers, row_id, channel, kind, content, headers, ordering_key in rows:
        filled = blank.copy()
        message_id, enqueued_at, filled["attempt"], filled["max_attempts"], filled["deliveries"] = numbers
        try:
            filled["enqueued_at"] = instant(enqueued_at)
            filled["channel"], filled["kind"] = str(channel, "utf-8"), str(kind, "utf-8")
            filled["ordering_key"] = None if ordering_key is None else str(ordering_key, "utf-8")
        except (ValueError, OverflowError, TypeError) as error:
            unreadable.append((message_id, said(error)))
            continue
        filled["message_id"], filled["row_id"], filled["content"], filled["settled"] = message_id, row_id, content, []
        if headers is not None:
            filled["headers"], refused = headers_of(str(headers, "utf-8"))
            filled["decoded"] = refused or filled["decoded"]
        # This takes a fifth of the time of a frozen dataclass, which sets its fields one by one.
        delivery = _new(Delivery)
        _set(delivery, "__dict__", filled)
        deliveries.append(delivery)
    return deliveries, unreadable


def hear_signals(connection: Connection, target: Target) -> bool:
    """Apply up to 1,000 signals to the state rows of their channels, and return whether more are left.

    Return False also if another call attends to the queue. Call it in a READ COMMITTED transaction of its own.
    """
    [[has_more]] = target.call("fq_hear", "hear the signals of", _HEAR).tuples(connection)
    return bool(has_more)


def is_about_data(error: BaseException) -> bool:
    """Return whether a row's data made a dequeue fail, rather than a lock, the connection, a timeout or a privilege."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    return sqlstate_of(error).startswith(_ABOUT_DATA)


def extend_lease(connection: Connection, target: Target, tokens: Sequence[Token], lease: timedelta) -> datetime | None:
    """Extend the one lease of all *tokens* by :func:`heartbeat`. Return its new end, or None if the lease is lost."""
    [extended] = heartbeat(connection, target, [tokens[0].lease_id], lease, tokens)
    return extended.expires_at


def heartbeat(
    connection: Connection, target: Target, lease_ids: Sequence[int], lease: timedelta, tokens: Sequence[Token] = ()
) -> list[ExtendedLease]:
    """Extend leases, unless they are lost, to run for at least *lease* from now. Return their state after that.

    A lease that does not hold each delivery in *tokens* counts as lost, so give *tokens* with one lease only.
    """
    rows = target.call(
        "fq_heartbeat",
        f"extend {len(lease_ids)} leases of",
        lease_ids=list(lease_ids),
        lease=lease,
        ids=[token.message_id for token in tokens],
        deliveries=[token.deliveries for token in tokens],
    ).tuples(connection)
    return [
        ExtendedLease(lease_id, None if expires_at is None else instant(expires_at), cancelled or [])
        for lease_id, expires_at, cancelled in rows
    ]


def charge_running(
    connection: Connection, target: Target, tokens: Sequence[Token], charges: Sequence[tuple[int, int]]
) -> None:
    """Charge for running handlers in a queue fair by seconds: *charges* has new and former totals, in milliseconds."""
    target.call(
        "fq_correct_costs",
        f"charge for {len(tokens)} deliveries of",
        ids=[token.message_id for token in tokens],
        lease_ids=[token.lease_id for token in tokens],
        deliveries=[token.deliveries for token in tokens],
        costs=[cost for cost, _ in charges],
        charged=[charged for _, charged in charges],
        running=True,
    ).rows(connection)


def held_tokens(connection: Connection, target: Target, lease_id: int) -> list[Token]:
    found = call(target.schema, "fq_held", f"find what is held under lease {lease_id}", lease_id=lease_id)
    return [Token(row.message_id, row.row_id, lease_id, row.deliveries) for row in found.rows(connection)]


def find_holder(connection: Connection, target: Target, message_id: int) -> str | None:
    doing = f"find who holds message {message_id} of"
    holder: str | None = refusal(connection, target, doing, outcome="lost", message_ids=[message_id])["holder"]
    return holder


def refusal(connection: Connection, target: Target, doing: str, **which: str | list[int]) -> dict[str, Any]:
    """Return the details of the error that ``fq_refuse`` would raise if it were called with the parameters *which*.

    If ``outcome`` is "full", the details have ``max_backlog``, the bound of ``channel``. If ``outcome`` is "lost", the
    details have ``holder``: the consumer that now holds the message with the lowest id in ``message_ids``, or None.
    """
    asked = {**dict.fromkeys(("channel", "ordinal", "message_ids")), **which}
    detail: dict[str, Any] = json.loads(target.call("fq_refuse", doing, fails=False, **asked).value(connection))
    return detail


@cache
def _settling(*, refusing: bool, costs: bool, alone: bool) -> Shape:
    before = "fq_correct_costs" if costs else ""
    arrays = (*_TOKEN, *(["costs", "charged"] if costs else [])) if alone else ()
    if not refusing:
        return Shape(before=before, alone=arrays)
    lost = (
        f"fairqueue.fq_refuse(cast('lost' as text), {argument('queue', 'text')}, cast(null as text),"
        " cast(null as integer), pg_catalog.array_agg(message_id), true) as outcome"
    )
    condition = (
        " where outcome operator(pg_catalog.=) cast('lost' as text)"
        " having pg_catalog.count(*) operator(pg_catalog.>) cast(0 as bigint)"
    )
    return Shape((lost,), condition, before, arrays)


def settlement(
    target: Target,
    verb: SettlementVerb,
    tokens: Sequence[tuple[int, str, int, int]],
    *,
    delays: Iterable[timedelta | None] = (),
    errors: Iterable[str | None] = (),
    reasons: Iterable[str | None] = (),
    results: Sequence[EncodedResult | None] = (),
    notify: bool = False,
    costs: Sequence[int | None] = (),
    charged: Sequence[int | None] = (),
    refusing: bool = False,
) -> Call:
    """Return the call that settles deliveries by a verb.

    Each optional sequence has one element for each delivery, or is empty. The call's rows name messages with another
    outcome than the verb's: "lost" if the token is invalid, "buried" if no attempt was left.

    Args:
        tokens: The fencing tokens, with the elements of :class:`Token`.
        results: Only for "complete". If an element is None, or the sequence is empty, no result is kept.
        notify: Whether the verb "complete" wakes programs that wait for the results, or another verb wakes consumers.
        costs: The actual costs. None leaves a cost as it was charged.
        charged: The costs that :func:`charge_running` charged last, or None. Give them with *costs*.
        refusing: Whether the call is sent with the COMMIT. It then fails if a delivery is lost, and returns no rows.
    """
    told = costs.count(None) < len(costs)
    alone = verb == "complete" and len(tokens) == 1
    arrays = tokens[0] if alone else map(list, zip(*tokens, strict=True))
    values: dict[str, Any] = dict(zip(_TOKEN, arrays, strict=True))
    if told:
        values["costs"] = costs[0] if alone else list(costs)
        values["charged"] = charged[0] if alone else list(charged)
        values["running"] = False
    if verb == "complete":
        values["kept"] = [one is not None for one in results] or None
        values["results"] = [None if one is None else one.content for one in results] or None
        values["problems"] = [None if one is None else one.problem for one in results] or None
        notify = notify and bool(results)
    else:
        values["outcome"] = _OUTCOMES[verb]
        values["delays"] = [None if delay is None else microseconds(delay) for delay in delays] or None
        values["errors"] = list(errors) or None
        values["reasons"] = list(reasons) or None
    doing = f"{verb} {len(tokens)} deliveries of"
    shape = _settling(refusing=refusing, costs=told, alone=alone)
    function = "fq_complete" if verb == "complete" else "fq_end_attempts"
    return target.call(function, doing, shape, **values, notify=notify)


def lock_deliveries(target: Target, tokens: Sequence[Token]) -> Call:
    """Return the call that locks the messages of valid tokens, in the order of their ids."""
    arrays = dict(zip(_TOKEN, map(list, zip(*tokens, strict=True)), strict=True))
    return target.call("fq_lock_deliveries", f"lock {len(tokens)} messages of", _LOCK, **arrays)
