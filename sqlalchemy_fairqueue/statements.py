"""One builder a SQL function: which function is called, with which arguments and types.

Nothing else writes SQL for them.
Every builder takes the schema of the installation (None: found through the search_path) and gives an executable clause
whose parameters are named as in the SQL, without the ``p_``.
"""

from __future__ import annotations

from functools import cache

from sqlalchemy import TextClause, text

from sqlalchemy_fairqueue.sql import quoted


def _qualifier(schema: str | None) -> str:
    # text() takes :word for a parameter, also in quotes.
    return "" if schema is None else quoted(schema).replace(":", "\\:") + "."


def _call(schema: str | None, function: str, columns: str, **types: str) -> TextClause:
    qualifier = _qualifier(schema)
    arguments = ", ".join(f"p_{name} => cast(:{name} as {type_})" for name, type_ in types.items())
    return text(f"select {columns} from {qualifier}{function}({arguments})")  # noqa: S608 (quoted)


_POLICY = {"max_concurrency": "integer", "release_interval": "bigint", "release_burst": "integer", "weight": "integer"}
_TOKENS = {"ids": "bigint[]", "rows": "tid[]", "lease_ids": "bigint[]", "deliveries": "integer[]"}


@cache
def enqueue(schema: str | None) -> TextClause:
    """``fq_enqueue``: rows (ordinal, message_id, created)."""
    return _call(
        schema,
        "fq_enqueue",
        "ordinal, message_id, created",
        queue="text",
        channels="text[]",
        kinds="text[]",
        contents="bytea[]",
        headers="jsonb[]",
        delays="bigint[]",
        ats="bigint[]",
        priorities="integer[]",
        keys="text[]",
        max_attempts="integer[]",
        **_POLICY,
    )


@cache
def dequeue(schema: str | None) -> TextClause:
    """``fq_dequeue``: one row a message, then one about the call."""
    return _call(
        schema,
        "fq_dequeue",
        "*",
        queue="text",
        limit="integer",
        lease="bigint",
        consumer="text",
        lease_id="bigint",
        hints="bigint[]",
    )


@cache
def hear(schema: str | None) -> TextClause:
    """``fq_hear``: one row (heard, seen, first_id, last_id, scheduled_at)."""
    return _call(
        schema, "fq_hear", "heard, seen, first_id, last_id, scheduled_at", queue="text", after="bigint", limit="integer"
    )


@cache
def complete(schema: str | None) -> TextClause:
    """``fq_complete``: rows (message_id, outcome) of what was lost."""
    return _call(schema, "fq_complete", "message_id, outcome", queue="text", **_TOKENS)


@cache
def release(schema: str | None) -> TextClause:
    """``fq_release``: rows (message_id, outcome) of what was lost."""
    return _call(schema, "fq_release", "message_id, outcome", queue="text", **_TOKENS, delays="bigint[]")


@cache
def retry(schema: str | None) -> TextClause:
    """``fq_retry``: rows (message_id, outcome) of what was lost or buried."""
    return _call(schema, "fq_retry", "message_id, outcome", queue="text", **_TOKENS, delays="bigint[]", errors="text[]")


@cache
def bury(schema: str | None) -> TextClause:
    """``fq_bury``: rows (message_id, outcome) of what was lost."""
    return _call(schema, "fq_bury", "message_id, outcome", queue="text", **_TOKENS, reasons="text[]", errors="text[]")


@cache
def hold_deliveries(schema: str | None) -> TextClause:
    """``fq_hold_deliveries``: locks the messages in the order of their ids."""
    return _call(schema, "fq_hold_deliveries", "message_id", **_TOKENS)


@cache
def extend(schema: str | None) -> TextClause:
    """``fq_extend``: one row, the new end of the lease or null."""
    return _call(
        schema,
        "fq_extend",
        "fq_extend as expires_at",
        lease_id="bigint",
        lease="bigint",
        ids="bigint[]",
        deliveries="integer[]",
    )


@cache
def cancel(schema: str | None) -> TextClause:
    """``fq_cancel``: rows (message_id, outcome) of what was not withdrawn."""
    return _call(schema, "fq_cancel", "message_id, outcome", queue="text", ids="bigint[]")


@cache
def configure_queue(schema: str | None) -> TextClause:
    """``fq_configure_queue``."""
    return _call(schema, "fq_configure_queue", "1", queue="text", **_POLICY)


@cache
def configure_channel(schema: str | None) -> TextClause:
    """``fq_configure_channel``."""
    return _call(schema, "fq_configure_channel", "1", queue="text", channel="text", **_POLICY)


@cache
def holder(schema: str | None) -> TextClause:
    """Who holds a message now: one row (consumer), or none."""
    qualifier = _qualifier(schema)
    return text(
        "select l.consumer "  # noqa: S608 (quoted)
        f"from {qualifier}fq_message m join {qualifier}fq_lease l on l.id = m.lease_id "
        "where m.id = :message_id"
    )
