"""The figures of the report by Spark: those of the process, which tests/reporting holds against PostgreSQL."""

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

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

# Sums of fractions in another order, and what Spark does not compute.
_ROUNDED = {"denied_wait", "fair_share", "fairness", "least_fairness", "contended"}
_LACKING = {"above_share", "denial"}


@pytest.fixture(scope="module")
def figures(spark: "SparkSession") -> Figures:
    """The figures that Spark takes."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    return measure(frame(spark, nasty()), policies=policies(spark), bucket=timedelta(seconds=37))


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected.keys() - _LACKING:
            if name in _ROUNDED and expected[name] is not None:
                tolerance = timedelta(microseconds=1) if name == "denied_wait" else 1e-9
                assert abs(found[name] - expected[name]) <= tolerance, (name, found, expected)
            else:
                _same(found[name], expected[name])
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _same(one, other)
    else:
        assert found == expected


def _by_name(figures: Figures) -> dict[str, Any]:
    return {f"{one.queue} {one.channel}": asdict(one) for one in figures.channels}


def test_both_engines_give_the_same_figures(figures: Figures) -> None:
    """Spark's queries and the kernel of the process give the same figures of a history with everything in it."""
    expected = measure_table(table(nasty()), policies=known_policies())
    _same([asdict(one) for one in figures.queues], [asdict(one) for one in expected.queues])
    _same(_by_name(figures), _by_name(expected))


def test_both_engines_call_the_same_queue_fair(spark: "SparkSession") -> None:
    """So they do for a line and for turns."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    rows: list[Row] = served_in_line_and_in_turn()
    found, expected = measure(frame(spark, rows)), measure_table(table(rows))
    _same([asdict(one) for one in found.queues], [asdict(one) for one in expected.queues])
    _same(_by_name(found), _by_name(expected))


def test_buckets_do_not_matter(spark: "SparkSession", figures: Figures) -> None:
    """The same figures come from one bucket as from hundreds."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    assert measure(frame(spark, nasty()), policies=policies(spark), bucket=timedelta(days=30)) == figures


def test_a_history_of_several_databases_is_refused(spark: "SparkSession") -> None:
    """An id that stands for two channels is named."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    rows = frame(spark, nasty(attempts=3))
    other = rows.withColumn("channel", rows.channel.substr(2, 9))
    with pytest.raises(InvalidArgument, match=r"channel id 1 is channel 'giant' of queue 'documents' .*'iant'"):
        measure(rows.union(other))


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
