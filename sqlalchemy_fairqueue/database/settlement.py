"""Settlement of deliveries: complete, retry, release and bury, and the locks that they take first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy_fairqueue.database.calls import (
    Call,
    argument,
    call,
    fetch,
    fetch_rows,
    may_notify,
    once_a_schema,
    qualifier,
)
from sqlalchemy_fairqueue.database.tokens import TOKEN_TYPES, token_parameters
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.database.tokens import Token


class Unsettled(NamedTuple):
    """A delivery that was not settled as asked.

    Attributes:
        message_id: Its message.
        outcome: "lost": the token is not valid any more; "buried": a retry found it out of attempts.
    """

    message_id: int
    outcome: Literal["lost", "buried"]


class EncodedResult(NamedTuple):
    """The result to keep of a message that is completed.

    Attributes:
        content: What its handler returned, encoded. None: None.
        problem: Why that is not kept. None: it is.
    """

    content: bytes | None = None
    problem: str | None = None


# fq_correct_costs has to see the messages before they are settled, in the same transaction.
_COSTS = (
    "fq_correct_costs",
    {"queue": "text", "ids": "bigint[]", "lease_ids": "bigint[]", "deliveries": "integer[]", "costs": "bigint[]"},
)


def _select(
    schema: str | None,
    function: str,
    types: Mapping[str, str],
    *,
    refusing: bool,
    costs: bool = False,
    alone: bool = False,
) -> Clause:
    """A clause of what was not settled as asked; *refusing*: of nothing, it fails if a delivery is lost.

    *costs*: ``fq_correct_costs`` is called before. *alone*: of one delivery.
    """
    first = _COSTS if costs else None
    arrays = (*TOKEN_TYPES, *(["costs"] if costs else [])) if alone else ()
    if not refusing:
        return call(schema, function, "message_id, outcome", first, alone=arrays, queue="text", **types)
    lost = (
        f"{qualifier(schema)}fq_refuse(cast('lost' as text), {argument('queue', 'text')}, cast(null as text),"
        " cast(null as integer), pg_catalog.array_agg(message_id)) as outcome"
    )
    condition = (
        " where outcome operator(pg_catalog.=) cast('lost' as text)"
        " having pg_catalog.count(*) operator(pg_catalog.>) cast(0 as bigint)"
    )
    return call(schema, function, (lost,), first, condition=condition, alone=arrays, queue="text", **types)


@once_a_schema
def complete_clause(schema: str | None, *, alone: bool = False, refusing: bool = False, costs: bool = False) -> Clause:
    """``fq_complete``. *alone*: of one delivery."""
    types = TOKEN_TYPES | {"kept": "boolean[]", "results": "bytea[]", "problems": "text[]", "notify": "boolean"}
    return _select(schema, "fq_complete", types, refusing=refusing, costs=costs, alone=alone)


@once_a_schema
def retry_clause(schema: str | None, *, refusing: bool = False, costs: bool = False) -> Clause:
    """``fq_retry``."""
    types = TOKEN_TYPES | {"delays": "bigint[]", "errors": "text[]", "notify": "boolean"}
    return _select(schema, "fq_retry", types, refusing=refusing, costs=costs)


@once_a_schema
def release_clause(schema: str | None, *, refusing: bool = False, costs: bool = False) -> Clause:
    """``fq_release``."""
    types = TOKEN_TYPES | {"delays": "bigint[]", "notify": "boolean"}
    return _select(schema, "fq_release", types, refusing=refusing, costs=costs)


@once_a_schema
def bury_clause(schema: str | None, *, refusing: bool = False, costs: bool = False) -> Clause:
    """``fq_bury``."""
    types = TOKEN_TYPES | {"reasons": "text[]", "errors": "text[]"}
    return _select(schema, "fq_bury", types, refusing=refusing, costs=costs)


SettlementVerb = Literal["complete", "retry", "release", "bury"]
_CLAUSES = {"retry": retry_clause, "release": release_clause, "bury": bury_clause}


def settlement_call(
    connection: Connection,
    target: Target,
    verb: SettlementVerb,
    tokens: Sequence[Token],
    *,
    delays: Iterable[timedelta | None] = (),
    errors: Iterable[str | None] = (),
    reasons: Iterable[str | None] = (),
    results: Sequence[EncodedResult | None] = (),
    notify: bool = False,
    costs: Sequence[int | None] = (),
    refusing: bool = False,
) -> Call:
    """The call that settles deliveries, at least one, with what its verb takes of each.

    *results*: of deliveries that are completed what is kept of each, None: nothing; empty: nothing of all of them.
    *costs*: what they cost in truth; None, or none given: as charged. *refusing*: it fails if one is lost, to be sent
    together with COMMIT.
    """
    doing = f"{verb} {len(tokens)} deliveries of queue {target.queue!r}"
    told = any(cost is not None for cost in costs)
    alone = verb == "complete" and len(tokens) == 1
    if verb == "complete":
        parameters = dict[str, Any](zip(TOKEN_TYPES, tokens[0], strict=True)) if alone else token_parameters(tokens)
        parameters |= {
            "kept": [one is not None for one in results] or None,
            "results": [None if one is None else one.content for one in results] or None,
            "problems": [None if one is None else one.problem for one in results] or None,
            "notify": may_notify(connection, notify and bool(results)),
        }
        clause = complete_clause(target.schema, alone=alone, refusing=refusing, costs=told)
    else:
        parameters = token_parameters(tokens)
        clause = _CLAUSES[verb](target.schema, refusing=refusing, costs=told)
    parameters["queue"] = target.queue
    if told:
        parameters["costs"] = costs[0] if alone else list(costs)
    if verb == "bury":
        parameters |= {"reasons": list(reasons), "errors": list(errors)}
    elif verb != "complete":
        parameters |= {"delays": _delays(delays), "notify": may_notify(connection, notify)}
    if verb == "retry":
        parameters["errors"] = list(errors)
    return Call(clause, parameters, doing)


def settle(connection: Connection, settlement: Call) -> list[Unsettled]:
    """Send a :func:`settlement_call`."""
    return list(map(Unsettled._make, fetch_rows(connection, *settlement)))


def complete(
    connection: Connection,
    target: Target,
    tokens: Sequence[Token],
    *,
    results: Sequence[EncodedResult | None] = (),
    notify: bool = False,
) -> list[Unsettled]:
    """Settle deliveries whose work is done, at least one, and keep what their handlers returned."""
    return settle(connection, settlement_call(connection, target, "complete", tokens, results=results, notify=notify))


def retry(
    connection: Connection,
    target: Target,
    tokens: Sequence[Token],
    *,
    delays: Iterable[timedelta | None],
    errors: Iterable[str | None],
    notify: bool,
) -> list[Unsettled]:
    """Settle deliveries that failed: they are tried again, each after its delay, or buried when out of attempts."""
    found = settlement_call(connection, target, "retry", tokens, delays=delays, errors=errors, notify=notify)
    return settle(connection, found)


def release(
    connection: Connection,
    target: Target,
    tokens: Sequence[Token],
    *,
    delays: Iterable[timedelta | None],
    notify: bool,
) -> list[Unsettled]:
    """Give deliveries back, each after its delay; their attempt is not counted."""
    return settle(connection, settlement_call(connection, target, "release", tokens, delays=delays, notify=notify))


def bury(
    connection: Connection,
    target: Target,
    tokens: Sequence[Token],
    *,
    reasons: Iterable[str | None],
    errors: Iterable[str | None],
) -> list[Unsettled]:
    """Settle deliveries for good: their messages become dead letters."""
    return settle(connection, settlement_call(connection, target, "bury", tokens, reasons=reasons, errors=errors))


def _delays(delays: Iterable[timedelta | None]) -> list[int | None]:
    return [None if delay is None else microseconds(delay) for delay in delays]


@once_a_schema
def lock_deliveries_clause(schema: str | None) -> Clause:
    """``fq_lock_deliveries``."""
    return call(schema, "fq_lock_deliveries", "message_id", **TOKEN_TYPES, queue="text")


def lock_deliveries(connection: Connection, target: Target, tokens: Sequence[Token]) -> None:
    """Lock the messages of valid tokens, in the order of their ids."""
    fetch(connection, *lock_deliveries_call(target, tokens))


def lock_deliveries_call(target: Target, tokens: Sequence[Token]) -> Call:
    """The call of :func:`lock_deliveries`."""
    doing = f"lock {len(tokens)} messages of queue {target.queue!r}"
    return Call(lock_deliveries_clause(target.schema), token_parameters(tokens) | {"queue": target.queue}, doing)


@once_a_schema
def lock_messages_clause(schema: str | None) -> Clause:
    """``fq_lock_messages``."""
    return call(schema, "fq_lock_messages", "1", ids="bigint[]")


def lock_messages(connection: Connection, target: Target, message_ids: Iterable[int]) -> None:
    """Lock messages in the order of their ids, no matter who holds them."""
    ids = sorted(message_ids)
    doing = f"lock {len(ids)} messages of queue {target.queue!r}"
    fetch(connection, lock_messages_clause(target.schema), {"ids": ids}, doing)


@once_a_schema
def leased_without_slot_clause(schema: str | None) -> Clause:
    """``fq_leased_without_slot``."""
    return call(
        schema,
        "fq_leased_without_slot",
        "fq_leased_without_slot as ids",
        queue="text",
        slot="integer",
        channels="text[]",
    )


def leased_without_slot(connection: Connection, target: Target, channels: Sequence[str] | None) -> list[int]:
    """The leased messages that a new limit of these channels, or with None of the queue, will count."""
    parameters = {
        "queue": target.queue,
        "slot": 2 if channels is None else 1,
        "channels": None if channels is None else list(channels),
    }
    doing = f"find the leased messages of queue {target.queue!r}"
    [row] = fetch(connection, leased_without_slot_clause(target.schema), parameters, doing)
    ids: list[int] = row.ids
    return ids


@once_a_schema
def holder_clause(schema: str | None) -> Clause:
    """``fq_holder``."""
    return call(schema, "fq_holder", "fq_holder as consumer", message_id="bigint")


def holder(connection: Connection, target: Target, message_id: int) -> str | None:
    """The consumer that holds a message now, if any does."""
    parameters = {"message_id": message_id}
    [row] = fetch(connection, holder_clause(target.schema), parameters, f"find who holds message {message_id}")
    consumer: str | None = row.consumer
    return consumer
