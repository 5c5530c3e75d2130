"""The verbs of a message's life."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.statements.building import BACKLOG, TOKENS, call, policy

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.statements.building import Clause


@cache
def enqueue(schema: str | None, version: int = 1, *, alone: bool = False) -> Clause:
    """``fq_enqueue``: rows (ordinal, message_id, created), from version 2 on with outcome. *alone*: of one message."""
    messages = {
        "channels": "text[]",
        "kinds": "text[]",
        "contents": "bytea[]",
        "headers": "jsonb[]",
        "delays": "bigint[]",
        "ats": "bigint[]",
        "priorities": "integer[]",
        "keys": "text[]",
        "max_attempts": "integer[]",
    }
    columns = "ordinal, message_id, created"
    types = {"queue": "text", **messages, **policy(1)}
    if version > 1:
        messages["on_duplicates"] = "text[]"
        columns += ", outcome"
        types |= {"on_duplicates": "text[]", "notify": "boolean", **BACKLOG, "hold": "bigint[]"}
    return call(schema, "fq_enqueue", columns, alone=messages if alone else (), **types)


@cache
def dequeue(schema: str | None) -> Clause:
    """``fq_dequeue``: one row a message, then one about the call."""
    return call(
        schema,
        "fq_dequeue",
        # Not as the driver reads JSON: what it cannot read would cost the whole batch.
        "message_id, row_id, channel, kind, content, cast(headers as text) as headers, enqueued_at, attempt, "
        "max_attempts, deliveries, "
        "lease_id, lease_expires_at, hints, due_in, signals_after",
        queue="text",
        limit="integer",
        lease="bigint",
        consumer="text",
        lease_id="bigint",
        hints="bigint[]",
    )


@cache
def hear(schema: str | None) -> Clause:
    """``fq_hear``: one row (heard, seen, first_id, last_id, scheduled_at)."""
    return call(
        schema, "fq_hear", "heard, seen, first_id, last_id, scheduled_at", queue="text", after="bigint", limit="integer"
    )


@cache
def complete(schema: str | None, *, alone: bool = False) -> Clause:
    """``fq_complete``: rows (message_id, outcome) of what was lost. *alone*: of one delivery."""
    return call(schema, "fq_complete", "message_id, outcome", alone=TOKENS if alone else (), queue="text", **TOKENS)


@cache
def release(schema: str | None, version: int = 1) -> Clause:
    """``fq_release``: rows (message_id, outcome) of what was lost."""
    notify = {"notify": "boolean"} if version > 1 else {}
    return call(schema, "fq_release", "message_id, outcome", queue="text", **TOKENS, delays="bigint[]", **notify)


@cache
def retry(schema: str | None, version: int = 1) -> Clause:
    """``fq_retry``: rows (message_id, outcome) of what was lost or buried."""
    notify = {"notify": "boolean"} if version > 1 else {}
    return call(
        schema,
        "fq_retry",
        "message_id, outcome",
        queue="text",
        **TOKENS,
        delays="bigint[]",
        errors="text[]",
        **notify,
    )


@cache
def bury(schema: str | None) -> Clause:
    """``fq_bury``: rows (message_id, outcome) of what was lost."""
    return call(schema, "fq_bury", "message_id, outcome", queue="text", **TOKENS, reasons="text[]", errors="text[]")


@cache
def hold_deliveries(schema: str | None) -> Clause:
    """``fq_hold_deliveries``: locks the messages in the order of their ids."""
    return call(schema, "fq_hold_deliveries", "message_id", **TOKENS)


@cache
def hold_messages(schema: str | None) -> Clause:
    """``fq_hold_messages``, new in version 2: locks messages in the order of their ids, whoever has them."""
    return call(schema, "fq_hold_messages", "1", ids="bigint[]")


@cache
def cancel(schema: str | None) -> Clause:
    """``fq_cancel``: rows (message_id, outcome) of what was not withdrawn."""
    return call(schema, "fq_cancel", "message_id, outcome", queue="text", ids="bigint[]")


@cache
def redrive(schema: str | None) -> Clause:
    """``fq_redrive``, new in version 2: rows (message_id, outcome) of what was looked at."""
    return call(
        schema,
        "fq_redrive",
        "message_id, outcome",
        queue="text",
        ids="bigint[]",
        channel="text",
        kind="text",
        limit="integer",
        notify="boolean",
    )


@cache
def purge_dead(schema: str | None) -> Clause:
    """``fq_purge_dead``, new in version 2: one row (purged)."""
    return call(
        schema,
        "fq_purge_dead",
        "fq_purge_dead as purged",
        queue="text",
        ids="bigint[]",
        channel="text",
        kind="text",
        before="bigint",
    )
