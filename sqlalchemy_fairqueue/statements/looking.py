"""What is there. Nothing here changes or locks anything."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.statements.building import call, qualifier

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from sqlalchemy_fairqueue.statements.building import Clause


@cache
def version(schema: str | None) -> Clause:
    """``fq_version``: one row (version)."""
    return call(schema, "fq_version", "fq_version as version")


@cache
def queues(schema: str | None) -> Clause:
    """``fq_queues``: rows, the names of all queues."""
    return call(schema, "fq_queues", "*")


@cache
def stats(schema: str | None) -> Clause:
    """``fq_stats``: one row."""
    return call(schema, "fq_stats", "*", queue="text")


@cache
def channel_stats(schema: str | None) -> Clause:
    """``fq_channel_stats``: one row a channel."""
    return call(schema, "fq_channel_stats", "*", queue="text", channel="text", limit="integer", after="text")


@cache
def holder(schema: str | None) -> TextClause:
    """Who holds a message now: one row (consumer), or none."""
    ours = qualifier(schema)
    return text(
        "select l.consumer "  # noqa: S608 (quoted)
        f"from {ours}fq_message m join {ours}fq_lease l on l.id = m.lease_id "
        "where m.id = :message_id"
    )


@cache
def held(schema: str | None) -> TextClause:
    """What is held under a lease: rows (message_id, row_id, deliveries)."""
    return text(
        f"select m.id as message_id, m.ctid as row_id, m.deliveries from {qualifier(schema)}fq_message m "  # noqa: S608 (quoted)
        "where m.lease_id = :lease_id order by m.id"
    )


@cache
def max_backlog(schema: str | None) -> TextClause:
    """How many undelivered messages a channel may have: one row (max_backlog), or none."""
    ours = qualifier(schema)
    return text(
        "select s.max_backlog "  # noqa: S608 (quoted)
        f"from {ours}fq_channel c join {ours}fq_channel_state s on s.channel_id = c.id "
        "where c.queue = :queue and c.name = :channel "
        "order by s.turn desc limit 1"
    )


@cache
def dead_letters(schema: str | None) -> TextClause:
    """Dead letters of a queue, oldest death first: one row each."""
    ours = qualifier(schema)
    return text(
        "select d.message_id, c.name as channel, d.kind, d.content, cast(d.headers as text) as headers, "  # noqa: S608 (quoted)
        "d.dedupe_key, d.enqueued_at, d.attempts, d.max_attempts, d.deliveries, d.reason, d.error, d.died_at "
        f"from {ours}fq_dead_letter d join {ours}fq_channel c on c.id = d.channel_id "
        "where d.queue = :queue "
        "and (cast(:ids as bigint[]) is null or d.message_id = any (cast(:ids as bigint[]))) "
        "and (cast(:channel as text) is null or c.name = :channel) "
        "and (cast(:kind as text) is null or d.kind = :kind) "
        "and (cast(:died_at as bigint) is null "
        "or (d.died_at, d.message_id) > (cast(:died_at as bigint), cast(:message_id as bigint))) "
        "order by d.died_at, d.message_id limit :limit"
    )
