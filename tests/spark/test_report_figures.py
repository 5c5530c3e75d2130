"""Reports and replays by Spark: they are those of the process, and read a history once."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import concat, lit
from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import HistoryEmpty, Scenario, read_history, report
from sqlalchemy_fairqueue.reporting.figures import Policy
from sqlalchemy_fairqueue.reporting.history import RecordedHistory
from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings
from sqlalchemy_fairqueue.spark import replay, replays
from sqlalchemy_fairqueue.spark import report as report_by_spark
from tests.fixtures.database import Database
from tests.reporting import values
from tests.reporting.simulation.replay_programs import KernelRun, Program, Task, name_of
from tests.reporting.tables import known_policies, measure_table, table
from tests.spark.conftest import installed
from tests.spark.recorded import add
from tests.spark.report_history import SCHEMA, Row, frame, nasty, policies, served_in_line_and_in_turn

pytestmark = pytest.mark.timeout(900)


def test_both_engines_give_the_same_figures(spark: SparkSession) -> None:
    """Spark and the process give the same figures, all of them, of a history with everything in it."""
    rows, known = nasty(attempts=400), policies(spark)
    expected = measure_table(table(rows), policies=known_policies())
    assert any(one.denial and one.by_cost and one.by_cost.denial for one in expected.channels)
    assert report_by_spark(frame(spark, rows), policies=known, output=None).figures == expected


def test_both_engines_make_the_same_report(spark: SparkSession) -> None:
    """With scenarios, an objective, labels from a column and advice, the whole report is the same."""
    rows: list[Row] = served_in_line_and_in_turn()
    # A tenant of two queues has the name of its last attempt in either.
    labels = pa.array([f"tenant {row.channel} {row.queue}" for row in rows])
    settings = {"in line": QueueSettings("messages", 3)}
    history = RecordedHistory(table(rows).append_column("customer", labels), {}, policies_known=True, settings=settings)
    wanted: dict[str, Any] = {
        "scenarios": [Scenario(name="one line", discipline="fifo"), Scenario(name="two", workers=2)],
        "objective": "p95 < 3 s", "labels": "customer", "replayed": True,
    }  # fmt: skip
    expected = report(history, **wanted, output=None)
    assert expected.advice
    assert {label.rpartition(" ")[2] for label in expected.labels.values()} == {"line", "turns"}
    assert [one.name for one in expected.replays] == ["as recorded, replayed", "one line", "two"]

    found = report_by_spark(
        frame(spark, rows).withColumn("customer", concat(lit("tenant "), "channel", lit(" "), "queue")),
        policies=policies(spark).where("false"), settings=settings, **wanted, output=None,
    )  # fmt: skip
    assert replace(found, made_at=expected.made_at) == expected


def test_refusals(spark: SparkSession) -> None:
    """A tenant, a column or a pair of arguments that cannot be, and ids that stand for two channels, are named."""
    rows = frame(spark, nasty(attempts=3))
    lines: dict[str, Any] = {"scenarios": [Scenario(name="one line", discipline="fifo")]}
    known = policies(spark)
    renamed = rows.union(rows.withColumn("channel", rows.channel.substr(2, 9)))
    moved = rows.union(rows.selectExpr("id", "'elsewhere' as queue", *rows.columns[2:]))
    refused: list[tuple[str, DataFrame, dict[str, Any]]] = [
        ("no attempts of channel 'nobody'", rows, {"tenant": "nobody"}),
        ("no column 'customer' of labels", rows, {"labels": "customer"}),
        ("replays, and scenarios", rows, lines | {"replays": values.report("small-3").replays}),
        ("replays, and scenarios", rows, {"replayed": True, "replays": values.report("small-3").replays}),
        ("the history lacks id, message_id", rows.drop("id", "message_id"), lines),
        ("the history lacks ready_at, outcome", rows.drop("ready_at", "outcome"), {}),
        ("the policies lack weight", rows, {"policies": known.drop("weight")}),
        ("the history has no attempts", rows.where("id < 0"), {}),
        ("channel id 1 is channel 'giant' of queue 'documents' .*'iant'", renamed, {}),
        ("channel id 1 is channel 'giant' of queue 'documents' .*'elsewhere'", moved, {}),
    ]
    for words, history, options in refused:
        with pytest.raises((InvalidArgument, HistoryEmpty), match=words):
            report_by_spark(history, output=None, **options)


_TIMES = ("enqueued_at", "ready_at", "started_at", "finished_at")


def read(spark: SparkSession, database: Database, table: str) -> DataFrame:
    """A table as a frame that is read anew whenever it is used."""
    return spark.read.format("fairqueue").options(dsn=database.conninfo, table=table).load()


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
    kernel.connection.close()
    return read(spark, database, "history").drop("group")


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


def test_figures_of_replays(spark: SparkSession, recorded: DataFrame, database: Database, engine: Engine) -> None:
    """The figures of each scenario are those of the report in the process, with its policies; first comes the record
    itself, replayed under its own policies and by as many workers as it shows, close enough to trust the others.
    """
    turns = Scenario(name="two at a time", workers=3, defaults=ChannelPolicy(max_concurrency=2, weight=5))
    again, found = replays(recorded, [turns], policies=read(spark, database, "channels"))
    assert (again, found) == report(read_history(engine), scenarios=[turns], output=None).replays
    own: Any = again.replayed[0]
    # The three wait for the limited channel now and then, while others have nothing.
    assert own.workers == pytest.approx(3, rel=0.1)
    assert (own.estimated, own.policies_known, own.trusted) == (True, True, True)
    assert abs(own.replay_bias) <= own.replay_error
    assert {one.channel: one.policy for one in again.channels}[name_of(2)] == Policy(max_concurrency=1)
    channel = {one.channel: one for one in found.channels}[name_of(0)]
    assert (channel.greatest_concurrency, channel.policy) == (2, Policy(max_concurrency=2, weight=5))


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


_COPY = re.compile(r"statement: copy \(.*?from \S*(fq_\w+)", re.IGNORECASE | re.DOTALL)


def test_replays_and_a_report_read_a_live_history_once_each(
    spark: SparkSession, private_server: Callable[..., Server]
) -> None:
    """One COPY of the history makes all replays, another one the report; one of the channels makes its policies. A
    report that replays needs no more, and a persisted history is left persisted, so that a second report reads nothing.
    """
    server = private_server(settings={"log_statement": "all"})
    database = installed(server)
    add(database, 300)

    def counted() -> tuple[int, int]:
        """How many COPYs the server has sent of the history, and of the channels."""
        found = _COPY.findall(server.log_path.read_text(errors="replace"))
        return found.count("fq_history"), found.count("fq_channel")

    history, channels = read(spark, database, "history"), read(spark, database, "channels")
    lines = [Scenario(name="one line", discipline="fifo")]
    found = replays(history, lines)
    assert counted() == (1, 0)

    made = report_by_spark(history, policies=channels, output=None, replays=found)
    assert sum(channel.attempts for channel in made.figures.channels) == 300
    assert counted() == (2, 1)

    whole = report_by_spark(history, policies=channels, scenarios=lines, replayed=True, output=None)
    assert [one.name for one in whole.replays] == [one.name for one in found]
    assert counted() == (3, 2)

    history.persist()
    try:
        report_by_spark(history, output=None)
        assert history.storageLevel.useDisk
        assert history.count() == 300
        assert counted() == (4, 2)
    finally:
        history.unpersist()


def test_one_shuffle_makes_the_figures(spark: SparkSession) -> None:
    """A report runs one collection of the history with one shuffle, and so do all replays together: Spark runs a job
    for the shuffle and one for what follows. Nothing stays persisted.
    """
    context = spark.sparkContext
    rows = frame(spark, nasty(attempts=30))
    persisted = len(spark.sparkContext._jsc.getPersistentRDDs())
    for name, run in {
        "figures": lambda: report_by_spark(rows, output=None),
        "report": lambda: report_by_spark(
            rows, scenarios=[Scenario(name="two", workers=2)], replayed=True, output=None
        ),
        "replays": lambda: replays(rows, [Scenario(name=f"{number} workers", workers=number) for number in (1, 2, 3)]),
    }.items():
        context.setJobGroup(name, name)
        try:
            run()  # type: ignore[no-untyped-call]
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        tracker = context.statusTracker()
        jobs = tracker.getJobIdsForGroup(name)
        infos = [found for job in jobs if (found := tracker.getJobInfo(job))]
        assert 1 <= len(infos) <= 2, name
        assert len({stage for found in infos for stage in found.stageIds}) <= 3, name
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == persisted
