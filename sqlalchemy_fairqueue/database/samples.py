"""Context of a sample of figures: the clock, the snapshot, the queues with a history, and what was completed since."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.database.calls import Clause, call, fetch, qualifier
from sqlalchemy_fairqueue.database.policies import policy_values
from sqlalchemy_fairqueue.times import instant
from sqlalchemy_fairqueue.values import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.values import FairBy


@dataclass(frozen=True, slots=True)
class SampleContext:
    """The context of a sample.

    Attributes:
        at: The time by the queue's clock.
        snapshot: The snapshot as PostgreSQL writes it.
    """

    at: datetime
    snapshot: str


@cache
def sample_context_statement(schema: str | None) -> Clause:
    """The clock and the snapshot."""
    return Clause(text(f"select {qualifier(schema)}fq_now() as now, pg_current_snapshot()::text as snapshot"))


def sample_context(connection: Connection, schema: str | None) -> SampleContext:
    """The clock and the snapshot of the transaction. For one snapshot, the transaction is REPEATABLE READ."""
    [row] = fetch(connection, sample_context_statement(schema), {}, "read the clock of the queues")
    return SampleContext(instant(row.now), row.snapshot)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue that readers need.

    Attributes:
        history: Whether it records its history.
        fair_by: What its channels get equal parts of.
        defaults: The policy that new channels start with. None: the one that their first enqueue brings.
    """

    history: bool = False
    fair_by: FairBy = "messages"
    defaults: ChannelPolicy | None = None


@cache
def queue_settings_clause(schema: str | None) -> Clause:
    """``fq_queue_settings``."""
    return call(schema, "fq_queue_settings", "queue, history, fair_by, defaults", queue="text")


def queue_settings(connection: Connection, schema: str | None) -> dict[str, QueueSettings]:
    """The configured queues with their settings."""
    rows = fetch(connection, queue_settings_clause(schema), {"queue": None}, "read the settings of the queues")
    return {
        row.queue: QueueSettings(
            row.history,
            row.fair_by,
            None if row.defaults is None else ChannelPolicy(**policy_values(row.defaults)),
        )
        for row in rows
    }


@cache
def completions_clause(schema: str | None) -> Clause:
    """``fq_completions``."""
    columns = "queue, convert_to(channel, 'UTF8') as channel, attempts"
    return call(schema, "fq_completions", columns, before="text", queues="text[]")


def completions(
    connection: Connection, schema: str | None, *, before: str, queues: Sequence[str]
) -> dict[tuple[str, str], int]:
    """Completed attempts by queue and channel, recorded since the snapshot *before*, each counted once."""
    parameters = {"before": before, "queues": list(queues)}
    rows = fetch(connection, completions_clause(schema), parameters, "count the completions since the last sample")
    return {(row.queue, str(row.channel, "utf-8")): row.attempts for row in rows}
