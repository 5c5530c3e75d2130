"""Settlement of deliveries: complete, retry, release and bury, and the locks that they take first."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify
from sqlalchemy_fairqueue.database.tokens import TOKEN_TYPES, token_parameters
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
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


@cache
def complete_clause(schema: str | None, *, alone: bool = False) -> Clause:
    """``fq_complete``. *alone*: of one delivery."""
    types = TOKEN_TYPES
    return call(schema, "fq_complete", "message_id, outcome", alone=types if alone else (), queue="text", **types)


@cache
def retry_clause(schema: str | None) -> Clause:
    """``fq_retry``."""
    types = TOKEN_TYPES | {"delays": "bigint[]", "errors": "text[]", "notify": "boolean"}
    return call(schema, "fq_retry", "message_id, outcome", queue="text", **types)


@cache
def release_clause(schema: str | None) -> Clause:
    """``fq_release``."""
    types = TOKEN_TYPES | {"delays": "bigint[]", "notify": "boolean"}
    return call(schema, "fq_release", "message_id, outcome", queue="text", **types)


@cache
def bury_clause(schema: str | None) -> Clause:
    """``fq_bury``."""
    types = TOKEN_TYPES | {"reasons": "text[]", "errors": "text[]"}
    return call(schema, "fq_bury", "message_id, outcome", queue="text", **types)


def complete(connection: Connection, target: Target, tokens: Sequence[Token]) -> list[Unsettled]:
    """Settle deliveries whose work is done: their messages are gone. At least one."""
    alone = len(tokens) == 1
    parameters = dict[str, Any](zip(TOKEN_TYPES, tokens[0], strict=True)) if alone else token_parameters(tokens)
    parameters["queue"] = target.queue
    doing = f"complete {len(tokens)} deliveries of queue {target.queue!r}"
    return _settle(connection, complete_clause(target.schema, alone=alone), parameters, doing)


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
    parameters = token_parameters(tokens) | {
        "queue": target.queue,
        "delays": _delays(delays),
        "errors": list(errors),
        "notify": may_notify(connection, notify),
    }
    doing = f"retry {len(tokens)} deliveries of queue {target.queue!r}"
    return _settle(connection, retry_clause(target.schema), parameters, doing)


def release(
    connection: Connection,
    target: Target,
    tokens: Sequence[Token],
    *,
    delays: Iterable[timedelta | None],
    notify: bool,
) -> list[Unsettled]:
    """Give deliveries back, each after its delay; their attempt is not counted."""
    parameters = token_parameters(tokens) | {
        "queue": target.queue,
        "delays": _delays(delays),
        "notify": may_notify(connection, notify),
    }
    doing = f"release {len(tokens)} deliveries of queue {target.queue!r}"
    return _settle(connection, release_clause(target.schema), parameters, doing)


def bury(
    connection: Connection,
    target: Target,
    tokens: Sequence[Token],
    *,
    reasons: Iterable[str | None],
    errors: Iterable[str | None],
) -> list[Unsettled]:
    """Settle deliveries for good: their messages become dead letters."""
    parameters = token_parameters(tokens) | {
        "queue": target.queue,
        "reasons": list(reasons),
        "errors": list(errors),
    }
    doing = f"bury {len(tokens)} deliveries of queue {target.queue!r}"
    return _settle(connection, bury_clause(target.schema), parameters, doing)


def _settle(connection: Connection, clause: Clause, parameters: dict[str, Any], doing: str) -> list[Unsettled]:
    return list(map(Unsettled._make, fetch(connection, clause, parameters, doing)))


def _delays(delays: Iterable[timedelta | None]) -> list[int | None]:
    return [None if delay is None else microseconds(delay) for delay in delays]


@cache
def hold_deliveries_clause(schema: str | None) -> Clause:
    """``fq_hold_deliveries``."""
    return call(schema, "fq_hold_deliveries", "message_id", **TOKEN_TYPES, queue="text")


def hold_deliveries(connection: Connection, target: Target, tokens: Sequence[Token]) -> None:
    """Lock the messages of valid tokens, in the order of their ids."""
    doing = f"lock {len(tokens)} messages of queue {target.queue!r}"
    parameters = token_parameters(tokens) | {"queue": target.queue}
    fetch(connection, hold_deliveries_clause(target.schema), parameters, doing)


@cache
def hold_messages_clause(schema: str | None) -> Clause:
    """``fq_hold_messages``."""
    return call(schema, "fq_hold_messages", "1", ids="bigint[]")


def hold_messages(connection: Connection, target: Target, message_ids: Iterable[int]) -> None:
    """Lock messages in the order of their ids, no matter who holds them."""
    ids = sorted(message_ids)
    doing = f"lock {len(ids)} messages of queue {target.queue!r}"
    fetch(connection, hold_messages_clause(target.schema), {"ids": ids}, doing)


@cache
def leased_clause(schema: str | None) -> Clause:
    """``fq_leased``."""
    return call(schema, "fq_leased", "fq_leased as ids", queue="text", slot="integer", channels="text[]")


def leased(connection: Connection, target: Target, channels: Sequence[str] | None) -> list[int]:
    """The leased messages that a new limit of these channels, or with None of the queue, will count."""
    parameters = {
        "queue": target.queue,
        "slot": 2 if channels is None else 1,
        "channels": None if channels is None else list(channels),
    }
    doing = f"find the leased messages of queue {target.queue!r}"
    [row] = fetch(connection, leased_clause(target.schema), parameters, doing)
    ids: list[int] = row.ids
    return ids


@cache
def holder_clause(schema: str | None) -> Clause:
    """``fq_holder``."""
    return call(schema, "fq_holder", "fq_holder as consumer", message_id="bigint")


def holder(connection: Connection, target: Target, message_id: int) -> str | None:
    """The consumer that holds a message now, if any does."""
    parameters = {"message_id": message_id}
    [row] = fetch(connection, holder_clause(target.schema), parameters, f"find who holds message {message_id}")
    consumer: str | None = row.consumer
    return consumer
