"""Context of a sample of figures: the clock, the snapshot, and what was completed since another snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.database.calls import Clause, call, fetch, once_a_schema, qualifier
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class SampleContext:
    """The context of a sample.

    Attributes:
        at: The time by the queue's clock.
        snapshot: The snapshot as PostgreSQL writes it.
    """

    at: datetime
    snapshot: str


@once_a_schema
def now_clause(schema: str | None) -> Clause:
    """``fq_now``."""
    return call(schema, "fq_now", "fq_now as now")


def now(connection: Connection, schema: str | None) -> datetime:
    """The time by the queue's clock, which is the database's."""
    [row] = fetch(connection, now_clause(schema), {}, "read the clock of the queues")
    return instant(row.now)


@once_a_schema
def sample_context_statement(schema: str | None) -> Clause:
    """The clock and the snapshot."""
    columns = f"{qualifier(schema)}fq_now() as now, cast(pg_catalog.pg_current_snapshot() as text) as snapshot"
    return Clause(text(f"select {columns}"))


def sample_context(connection: Connection, schema: str | None) -> SampleContext:
    """The clock and the snapshot of the transaction. For one snapshot, the transaction is REPEATABLE READ."""
    [row] = fetch(connection, sample_context_statement(schema), {}, "read the clock of the queues")
    return SampleContext(instant(row.now), row.snapshot)


@once_a_schema
def completions_clause(schema: str | None) -> Clause:
    """``fq_completions``."""
    columns = "queue, pg_catalog.convert_to(channel, 'UTF8') as channel, attempts"
    return call(schema, "fq_completions", columns, before="text", queues="text[]")


def completions(
    connection: Connection, schema: str | None, *, before: str, queues: Sequence[str]
) -> dict[tuple[str, str], int]:
    """Completed attempts by queue and channel, recorded since the snapshot *before*, each counted once."""
    parameters = {"before": before, "queues": list(queues)}
    rows = fetch(connection, completions_clause(schema), parameters, "count the completions since the last sample")
    return {(row.queue, str(row.channel, "utf-8")): row.attempts for row in rows}
