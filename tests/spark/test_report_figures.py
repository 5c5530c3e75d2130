"""The figures of the report by Spark: those of the process, which tests/reporting holds against PostgreSQL."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import Figures, Scenario, report
from sqlalchemy_fairqueue.reporting.history import RecordedHistory
from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings
from tests.reporting import values
from tests.reporting.tables import known_policies, measure_table, table
from tests.spark.report_history import frame, nasty, policies, served_in_line_and_in_turn

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.report_history import Row

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def figures(spark: "SparkSession") -> Figures:
    """The figures that Spark takes."""
    from sqlalchemy_fairqueue.spark.reporting import report  # noqa: PLC0415

    return report(frame(spark, nasty(attempts=400)), policies=policies(spark), output=None).figures


def test_both_engines_give_the_same_figures(figures: Figures) -> None:
    """Spark and the process give the same figures, all of them, of a history with everything in it."""
    expected = measure_table(table(nasty(attempts=400)), policies=known_policies())
    assert any(one.denial and one.by_cost and one.by_cost.denial for one in expected.channels)
    assert figures == expected


def test_both_engines_make_the_same_report(spark: "SparkSession") -> None:
    """With scenarios, an objective, labels from a column and advice, the whole report is the same."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from sqlalchemy_fairqueue.spark import report as report_by_spark  # noqa: PLC0415

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
        frame(spark, rows).withColumn("customer", F.concat(F.lit("tenant "), "channel", F.lit(" "), "queue")),
        policies=policies(spark).where("false"), settings=settings, **wanted, output=None,
    )  # fmt: skip
    assert replace(found, made_at=expected.made_at) == expected


def test_a_tenant_page_and_refusals(spark: "SparkSession", tmp_path: "Path") -> None:
    """The page about one tenant names no other. A tenant, a column, or a pair of arguments that cannot be is told."""
    from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty  # noqa: PLC0415
    from sqlalchemy_fairqueue.spark import report as report_by_spark  # noqa: PLC0415

    rows = frame(spark, served_in_line_and_in_turn())
    report_by_spark(rows, tenant="small-3", output=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert ("small-3" in page, "small-4" in page) == (True, False)
    scenario = Scenario(name="one line", discipline="fifo")
    with pytest.raises(HistoryEmpty, match="no attempts of channel 'nobody'"):
        report_by_spark(rows, tenant="nobody", output=None)
    with pytest.raises(InvalidArgument, match="the history has no column 'customer' of labels"):
        report_by_spark(rows, labels="customer", output=None)
    with pytest.raises(InvalidArgument, match="both scenarios and replays"):
        report_by_spark(rows, scenarios=[scenario], replays=values.report("small-3").replays, output=None)
    with pytest.raises(InvalidArgument, match="the history lacks id, message_id"):
        report_by_spark(rows.drop("id", "message_id"), scenarios=[scenario], output=None)


def test_a_history_of_several_databases_is_refused(spark: "SparkSession") -> None:
    """An id that stands for two channels is named."""
    from sqlalchemy_fairqueue.spark.reporting import report  # noqa: PLC0415

    rows = frame(spark, nasty(attempts=3))
    other = rows.withColumn("channel", rows.channel.substr(2, 9))
    with pytest.raises(InvalidArgument, match=r"channel id 1 is channel 'giant' of queue 'documents' .*'iant'"):
        report(rows.union(other), output=None)
    elsewhere = rows.selectExpr("id", "'elsewhere' as queue", *rows.columns[2:])
    with pytest.raises(InvalidArgument, match=r"channel id 1 is channel 'giant' of queue 'documents' .*'elsewhere'"):
        report(rows.union(elsewhere), output=None)


def test_what_is_missing_is_named(spark: "SparkSession") -> None:
    """A frame that is no history, policies that are none, and an empty history are refused in words."""
    from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty  # noqa: PLC0415
    from sqlalchemy_fairqueue.spark.reporting import report  # noqa: PLC0415

    rows = frame(spark, nasty(attempts=1))
    with pytest.raises(InvalidArgument, match="the history lacks ready_at, outcome: it has id, "):
        report(rows.drop("ready_at", "outcome"), output=None)
    with pytest.raises(InvalidArgument, match="the policies lack weight: they have queue, "):
        report(rows, policies=policies(spark).drop("weight"), output=None)
    with pytest.raises(HistoryEmpty, match="the history has no attempts; queues record them after"):
        report(rows.where("id < 0"), output=None)
