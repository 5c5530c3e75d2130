"""A history with everything that may go wrong in one: for the figures of the report."""

from __future__ import annotations

import random
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.times import instant_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.fixtures.database import Database

BEGIN = datetime(2026, 3, 28, 23, 50, tzinfo=UTC)
GIANT = "giant"
HOSTILE = "</script><script>alert('1')</script> & \"q\" {{ 7*7 }} \u202egnp\u2028"
POLICIES = {
    GIANT: (4, 0, 1, 3),
    "small-1": (1, 700_000, 2, 1),
    "small-2": (None, 3_000_000, 1, 1),
    "small-3": (2, 0, 1, 2),
    HOSTILE: (None, 250_000, 5, 1),
}
"""max_concurrency, rate_interval in microseconds, rate_burst, weight."""

SCHEMA = (
    "id long, queue string, channel_id long, channel string, message_id long, kind string, consumer string, "
    "attempt int, enqueued_at timestamp, ready_at timestamp, started_at timestamp, finished_at timestamp, "
    "outcome string, error string, recorded_xid long, cost long"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the history, in the order of the frame that all share."""

    id: int
    queue: str
    channel_id: int
    channel: str
    message_id: int
    kind: str = "parse"
    consumer: str | None = "worker 1"
    attempt: int = 1
    enqueued_at: datetime
    ready_at: datetime
    started_at: datetime
    finished_at: datetime
    outcome: str = "completed"
    error: str | None = None
    recorded_xid: int = 700
    cost: int = 1


def row(number: int, queue: str, channel: tuple[int, str], times: tuple[int, int, int], **more: Any) -> Row:
    """The attempt of a message: when it was ready, began and ended, in microseconds since BEGIN."""
    ready, began, ended = (BEGIN + timedelta(microseconds=at) for at in times)
    instants = {"enqueued_at": ready, "ready_at": ready, "started_at": began, "finished_at": ended}
    return Row(**{"id": number, "queue": queue, "channel_id": channel[0], "channel": channel[1],
                  "message_id": number, **instants, **more})  # fmt: skip


def nasty(seed: int = 7, attempts: int = 1500) -> list[Row]:
    """Retries, releases, expired leases, cancels; ties, services without length, clocks set back; a giant tenant beside
    small ones; an outage; an attempt that goes on while nothing else happens; a second queue.
    """
    names = [GIANT, HOSTILE, *(f"small-{number}" for number in range(1, 9))]
    dice = random.Random(seed)  # noqa: S311 - a history that is the same each time
    rows = []
    for number, made in enumerate(_attempts(dice, names, attempts), 1):
        queue, name, attempt, ready, service, wait, outcome = made
        channel = (names.index(name) + 1 + 100 * (queue == "mails"), name)
        rows.append(row(
            number, queue, channel, (ready, ready + wait, ready + wait + service), attempt=attempt, outcome=outcome,
            enqueued_at=BEGIN + timedelta(microseconds=ready - attempt), recorded_xid=700 + number,
            consumer=None if outcome == "expired" else "worker 1", cost=1 + number % 7 * (1 if name == GIANT else 30),
            error="Traceback" if outcome in {"retried", "buried"} else None,
        ))  # fmt: skip
    return rows


def _attempts(
    dice: random.Random, names: list[str], attempts: int
) -> Iterator[tuple[str, str, int, int, int, int, str]]:
    second = 1_000_000
    for _ in range(attempts):
        channel = GIANT if dice.random() < 0.6 else dice.choice(names[1:])
        ready = dice.randrange(600 * second)
        wait = dice.choice([0, 1, 50_000, int(dice.expovariate(1 / (20 * second)))])
        service = dice.choice([0, 0, 1, 100_000, int(dice.expovariate(1 / (2 * second)))])
        if dice.random() < 0.5:
            # Ties, within the channel and across.
            ready, wait, service = (value // second * second for value in (ready, wait, service))
        if 300 * second < ready + wait < 420 * second:
            # Everybody is away for two minutes.
            wait = 420 * second + dice.randrange(3 * second) - ready
        attempt, chance = 1, dice.random()
        while chance < 0.15 and attempt < 4:
            outcome = dice.choice(["retried", "released", "expired"])
            yield "documents", channel, attempt, ready, service, wait, outcome
            ready += max(wait, 0) + service + dice.choice([0, second])
            attempt, chance = attempt + 1, dice.random()
        yield "documents", channel, attempt, ready, service, wait, "completed" if chance < 0.95 else "buried"
    # The clock was set back, while a message waited and while it was handled.
    yield "documents", "small-1", 1, 200 * second, 5, -3 * second, "completed"
    yield "documents", "small-1", 1, 210 * second, -4 * second, 1, "completed"
    yield "documents", "small-8", 1, 220 * second, 3 * second, 90 * second, "cancelled"
    # A queue in which nothing happens for days but that one attempt goes on, and then that others wait for long.
    yield "mails", GIANT, 1, 0, 3 * 86_400 * second, 17, "completed"
    yield "mails", "small-1", 1, 5 * second, second, 2 * 86_400 * second + 3, "completed"
    yield "mails", "small-2", 1, 7 * second, 0, 3 * 86_400 * second, "completed"
    yield "mails", "small-2", 1, 4 * 86_400 * second, 0, 0, "completed"
    for number in range(40):
        yield "mails", GIANT, 1, 5 * 86_400 * second + number, 60 * second, 60 * number * second, "completed"
        yield "mails", "small-3", 1, 5 * 86_400 * second + number, 60 * second, 2_400 * second + number, "completed"


def served_in_line_and_in_turn() -> list[Row]:
    """The same messages served by one worker in two ways: a giant's 600 and, soon after, 20 of each of ten others."""
    step = 100_000
    came = [(0, GIANT)] * 600 + [(5_000_000, f"small-{number}") for number in range(10)] * 20
    rows: list[Row] = []
    for queue in ("in line", "by turns"):
        waiting, at = list(came), 0
        last = dict.fromkeys((channel for _, channel in came), -1)
        while waiting:
            ready = [one for one in waiting if one[0] <= at]
            due = min(ready, key=lambda one: (last[one[1]], one)) if queue == "by turns" else ready[0]
            waiting.remove(due)
            last[due[1]] = at
            channel = (100 * (queue == "in line") + list(last).index(due[1]), due[1])
            rows.append(row(len(rows) + 1, queue, channel, (due[0], at, at + step)))
            at += step
    return rows


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """The rows as the frame that readers give."""
    return spark.createDataFrame([astuple(one) for one in rows], SCHEMA)


def policies(spark: SparkSession) -> DataFrame:
    """The policies as the frame that readers give."""
    return spark.createDataFrame(
        [("documents", name, *policy) for name, policy in POLICIES.items()],
        "queue string, channel string, max_concurrency int, rate_interval long, rate_burst int, weight int",
    )


def store(database: Database, rows: list[Row]) -> None:
    """Put the rows into the history of a database, and the policies beside it."""
    import psycopg  # noqa: PLC0415

    with psycopg.connect(database.conninfo) as connection, connection.cursor() as cursor:
        columns = ", ".join(Row.__dataclass_fields__)
        with cursor.copy(f"copy fq_history ({columns}) from stdin") as copy:
            for one in rows:
                # Not astuple(), which copies each value and takes longer than all the rest.
                values = (getattr(one, name) for name in Row.__dataclass_fields__)
                copy.write_row([instant_microseconds(one) if isinstance(one, datetime) else one for one in values])
        cursor.execute(
            "create table policy (queue text, channel text, max_concurrency bigint, rate_interval bigint, "
            "rate_burst bigint, weight bigint)"
        )
        cursor.executemany(
            "insert into policy values (%s, %s, %s, %s, %s, %s)",
            [("documents", name, *policy) for name, policy in POLICIES.items()],
        )
