"""The figures of the report by Spark: those of the process, which tests/reporting holds against PostgreSQL."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import concat, lit

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import HistoryEmpty, Scenario, report
from sqlalchemy_fairqueue.reporting.history import RecordedHistory
from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings
from sqlalchemy_fairqueue.spark import report as report_by_spark
from tests.reporting import values
from tests.reporting.tables import known_policies, measure_table, table
from tests.spark.report_history import POLICIES, Row, frame, nasty, policies, served_in_line_and_in_turn

pytestmark = pytest.mark.timeout(900)


def test_both_engines_give_the_same_figures(spark: SparkSession) -> None:
    """Spark and the process give the same figures, all of them, of a history with everything in it."""
    rows, known = nasty(attempts=400), policies(spark, "documents", POLICIES)
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
        policies=policies(spark, "documents", {}), settings=settings, **wanted, output=None,
    )  # fmt: skip
    assert replace(found, made_at=expected.made_at) == expected


def test_refusals(spark: SparkSession) -> None:
    """A tenant, a column or a pair of arguments that cannot be, and ids that stand for two channels, are named."""
    rows = frame(spark, nasty(attempts=3))
    lines: dict[str, Any] = {"scenarios": [Scenario(name="one line", discipline="fifo")]}
    known = policies(spark, "documents", POLICIES)
    renamed = rows.union(rows.withColumn("channel", rows.channel.substr(2, 9)))
    moved = rows.union(rows.selectExpr("id", "'elsewhere' as queue", *rows.columns[2:]))
    refused: list[tuple[str, DataFrame, dict[str, Any]]] = [
        ("no attempts of channel 'nobody'", rows, {"tenant": "nobody"}),
        ("no column 'customer' of labels", rows, {"labels": "customer"}),
        ("both scenarios and replays", rows, lines | {"replays": values.report("small-3").replays}),
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
