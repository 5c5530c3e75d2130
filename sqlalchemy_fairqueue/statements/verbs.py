"""The verbs of a message's life."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.statements.building import POLICY, TOKENS, call

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.statements.building import Clause


@cache
def enqueue(schema: str | None, *, alone: bool = False) -> Clause:
    """``fq_enqueue``: rows (ordinal, message_id, created, outcome). *alone*: of one message."""
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
        "on_duplicates": "text[]",
    }
    return call(
        schema,
        "fq_enqueue",
        "ordinal, message_id, created, outcome",
        alone=messages if alone else (),
        queue="text",
        **messages,
        **POLICY,
        notify="boolean",
        hold="bigint[]",
    )


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
def release(schema: str | None) -> Clause:
    """``fq_release``: rows (message_id, outcome) of what was lost."""
    return call(
        schema, "fq_release", "message_id, outcome", queue="text", **TOKENS, delays="bigint[]", notify="boolean"
    )


@cache
def retry(schema: str | None) -> Clause:
    """``fq_retry``: rows (message_id, outcome) of what was lost or buried."""
    return call(
        schema,
        "fq_retry",
        "message_id, outcome",
        queue="text",
        **TOKENS,
        delays="bigint[]",
        errors="text[]",
        notify="boolean",
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
    """``fq_hold_messages``: locks messages in the order of their ids, whoever has them."""
    return call(schema, "fq_hold_messages", "1", ids="bigint[]")


@cache
def cancel(schema: str | None) -> Clause:
    """``fq_cancel``: rows (message_id, outcome) of what was not withdrawn."""
    return call(schema, "fq_cancel", "message_id, outcome", queue="text", ids="bigint[]")


@cache
def redrive(schema: str | None) -> Clause:
    """``fq_redrive``: rows (message_id, outcome) of what was looked at."""
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
    """``fq_purge_dead``: one row (purged)."""
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
