"""replay() and replays() on Spark, over histories that were really recorded."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.figures import Policy
from sqlalchemy_fairqueue.spark import Scenario, replay, replays
from tests.fixtures.database import Database
from tests.reporting.simulation.replay_programs import KernelRun, Program, Task, name_of
from tests.spark.report_history import SCHEMA, policies

_HISTORY = """
select id, queue, channel_id, channel, message_id, kind, consumer, attempt, {times}, outcome, error,
  recorded_xid::text::bigint as recorded_xid, cost
from fq_history
"""
_TIMES = ("enqueued_at", "ready_at", "started_at", "finished_at")


@pytest.fixture
def program() -> Program:
    """A big tenant and two small ones; one of those has a limit, and its messages are tried twice."""
    big = [Task(channel=0, gap=0, delay=0, priority=0, attempts=((20, 0),)) for _ in range(12)]
    small = [Task(channel=1, gap=15, delay=0, priority=0, attempts=((30, 0),)) for _ in range(4)]
    limited = [Task(channel=2, gap=3, delay=40, priority=0, attempts=((10, 25), (20, 0))) for _ in range(4)]
    policies = (ChannelPolicy(), ChannelPolicy(weight=2), ChannelPolicy(max_concurrency=1))
    return Program(tuple(big + small + limited), policies, workers=3, batch=1, max_concurrency=None, begin=5)


@pytest.fixture
def recorded(spark: SparkSession, database: Database, program: Program) -> DataFrame:
    """The history that PostgreSQL recorded of it."""
    kernel = KernelRun.prepare(database)
    KernelRun(kernel, program).run()
    times = ", ".join(f"timestamptz 'epoch' + {name} * interval '1 microsecond' as {name}" for name in _TIMES)
    rows = kernel.rows(_HISTORY.format(times=times))
    kernel.connection.close()
    return spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)


def attempts_of(rows: Sequence[Any], scenario: str, queue: str) -> list[Any]:
    """What a scenario has of each attempt, in the order of messages and attempts."""
    chosen = [row for row in rows if (row.scenario, row.queue) == (scenario, queue)]
    chosen.sort(key=lambda row: (row.message_id, row.attempt))
    return [tuple(row[name] for name in ("channel", "message_id", "attempt", *_TIMES, "outcome")) for row in chosen]


def test_as_it_was(recorded: DataFrame, program: Program) -> None:
    """Replayed under the policies and by the workers that it had, a history is the one that was recorded, in each queue
    for itself.
    """
    both = recorded.unionByName(recorded.withColumn("queue", lit("other")))
    frame = replay(both, [program.scenario])

    assert frame.columns == ["scenario", *recorded.columns]
    rows = frame.collect()
    was = attempts_of(rows, "as recorded", "q")
    assert len(was) == 24
    assert attempts_of(rows, "program", "q") == attempts_of(rows, "program", "other") == was


@pytest.mark.timeout(900)
def test_figures(spark: SparkSession, recorded: DataFrame, program: Program) -> None:
    """The figures of each scenario are those of the report, with its policies; first comes the record itself, replayed
    under its own policies and by as many workers as it shows, close enough to trust the others.
    """
    known = {name_of(n): (one.max_concurrency, 0, 1, one.weight) for n, one in enumerate(program.policies)}
    turns = Scenario(name="two at a time", workers=3, defaults=ChannelPolicy(max_concurrency=2, weight=5))

    again, found = replays(recorded, [turns], policies=policies(spark, "q", known))

    assert (again.name, found.name) == ("as recorded, replayed", "two at a time")
    own: Any = again.replayed[0]
    (given,) = found.replayed
    assert (given.workers, given.estimated, given.replay_error) == (3, False, None)
    # The three wait for the limited channel now and then, while others have nothing.
    assert own.workers == pytest.approx(3, rel=0.1)
    assert (own.estimated, own.policies_known, own.trusted) == (True, True, True)
    assert abs(own.replay_bias) <= own.replay_error
    weights = {channel.channel: channel.policy for channel in again.channels}
    assert weights == {name_of(0): Policy(), name_of(1): Policy(weight=2), name_of(2): Policy(max_concurrency=1)}
    channels = {channel.channel: channel for channel in found.channels}
    assert {name: one.attempts for name, one in channels.items()} == {name_of(0): 12, name_of(1): 4, name_of(2): 8}
    assert channels[name_of(0)].greatest_concurrency == 2
    assert channels[name_of(0)].policy == Policy(max_concurrency=2, weight=5)
    assert [queue.greatest_concurrency for queue in found.queues] == [3]


def test_columns_refused(spark: SparkSession) -> None:
    """A frame that is no history is refused before any task starts."""
    history = spark.createDataFrame([], SCHEMA)
    for words, wrong in {
        "lacks kind, ready_at": history.drop("ready_at", "kind"),
        "ready_at of the history is bigint": history.withColumn("ready_at", lit(1).cast("long")),
        "priority of the history is string": history.withColumn("priority", lit("high")),
    }.items():
        with pytest.raises(InvalidArgument, match=words):
            replay(wrong, [Scenario(name="x")])
