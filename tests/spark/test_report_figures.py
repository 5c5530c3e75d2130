"""The figures of the report by Spark: those of the process, which tests/reporting holds against PostgreSQL."""

from typing import TYPE_CHECKING

import pytest

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import Figures
from sqlalchemy_fairqueue.reporting.measurement import measure_table
from tests.reporting.tables import known_policies, table
from tests.spark.report_history import frame, nasty, policies, served_in_line_and_in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.report_history import Row

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def figures(spark: "SparkSession") -> Figures:
    """The figures that Spark takes."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    return measure(frame(spark, nasty()), policies=policies(spark))


def test_both_engines_give_the_same_figures(figures: Figures) -> None:
    """Spark and the process give the same figures, all of them, of a history with everything in it."""
    expected = measure_table(table(nasty()), policies=known_policies())
    assert any(one.denial and one.by_cost and one.by_cost.denial for one in expected.channels)
    assert figures == expected


def test_both_engines_call_the_same_queue_fair(spark: "SparkSession") -> None:
    """So they do for a line and for turns."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    rows: list[Row] = served_in_line_and_in_turn()
    found, expected = measure(frame(spark, rows)), measure_table(table(rows))
    assert found == expected


def test_a_history_of_several_databases_is_refused(spark: "SparkSession") -> None:
    """An id that stands for two channels is named."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    rows = frame(spark, nasty(attempts=3))
    other = rows.withColumn("channel", rows.channel.substr(2, 9))
    with pytest.raises(InvalidArgument, match=r"channel id 1 is channel 'giant' of queue 'documents' .*'iant'"):
        measure(rows.union(other))
    elsewhere = rows.selectExpr("id", "'elsewhere' as queue", *rows.columns[2:])
    with pytest.raises(InvalidArgument, match=r"channel id 1 is channel 'giant' of queue 'documents' .*'elsewhere'"):
        measure(rows.union(elsewhere))


def test_what_is_missing_is_named(spark: "SparkSession") -> None:
    """A frame that is no history, policies that are none, and an empty history are refused in words."""
    from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty  # noqa: PLC0415
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    rows = frame(spark, nasty(attempts=1))
    with pytest.raises(InvalidArgument, match="the history lacks ready_at, outcome: it has id, "):
        measure(rows.drop("ready_at", "outcome"))
    with pytest.raises(InvalidArgument, match="the policies lack weight: they have queue, "):
        measure(rows, policies=policies(spark).drop("weight"))
    with pytest.raises(HistoryEmpty, match="the history has no attempts; queues record them after"):
        measure(rows.where("id < 0"))
