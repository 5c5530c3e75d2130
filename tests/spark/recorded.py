"""Histories for tests: rows as queues record them, put in by plain SQL."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from sqlalchemy_fairqueue.times import instant_microseconds
from tests.fixtures.database import Database

DAY = timedelta(days=1)
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
COLUMNS = (
    "id", "queue", "channel_id", "channel", "message_id", "kind", "consumer", "attempt", "enqueued_at", "ready_at",
    "started_at", "finished_at", "outcome", "error", "recorded_xid", "cost", "group",
)  # fmt: skip
_INSERT = """
insert into fq_history (queue, channel_id, channel, message_id, kind, consumer, attempt, enqueued_at, ready_at,
  started_at, finished_at, outcome, error, cost, group_id)
select %(queue)s, i %% 3, 'customer-' || i %% 3, i, 'parse', case when i %% 2 = 0 then 'worker, "two"' end, 1,
  t - 3000001, t - 2000001, t - 1000001, t, 'completed',
  case i %% 4 when 0 then '' when 1 then E'line 1\n"line", 2\r\n' when 2 then 'naïve ☃ \\N' end, 1 + i %% 5,
  case when i %% 3 = 0 then md5((i %% 2)::text)::uuid end
from (select i, %(finished)s + i::bigint as t from generate_series(1, %(count)s) i) x
"""
_ROWS = """
select id, queue, channel_id, channel, message_id, kind, consumer, attempt,
  to_timestamp(0) + enqueued_at * interval '1 microsecond', to_timestamp(0) + ready_at * interval '1 microsecond',
  to_timestamp(0) + started_at * interval '1 microsecond', to_timestamp(0) + finished_at * interval '1 microsecond',
  outcome, error, recorded_xid::text::bigint, cost, group_id::text
from fq_history order by id
"""


def add(
    target: Database | psycopg.Connection, count: int = 1, *, finished: datetime = NOON, queue: str = "documents"
) -> None:
    """Record so many attempts in one transaction, which is the caller's where a connection is given."""
    values = {"queue": queue, "finished": instant_microseconds(finished), "count": count}
    if isinstance(target, psycopg.Connection):
        target.execute(_INSERT.encode(), values)
        return
    with psycopg.connect(target.conninfo) as connection:
        connection.execute(_INSERT.encode(), values)


def table(database: Database) -> list[tuple[Any, ...]]:
    """The whole history as the table has it, in the order of ids; times as datetimes."""
    with psycopg.connect(database.conninfo, options="-c timezone=UTC") as connection:
        return connection.execute(_ROWS.encode()).fetchall()


def held(database: Database) -> list[tuple[Any, ...]]:
    """The same, with times in microseconds."""
    return [(*row[:8], *(round(at.timestamp() * 1e6) for at in row[8:12]), *row[12:]) for row in table(database)]


def seen(frame: Any) -> list[tuple[Any, ...]]:
    """What Spark has read of a history, in the order of ids; times in microseconds."""
    micros = (f"unix_micros({name})" for name in COLUMNS[8:12])
    return sorted(map(tuple, frame.selectExpr(*COLUMNS[:8], *micros, *COLUMNS[12:]).collect()))
