"""The figures of the report, against PostgreSQL's own account of the same history."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.spark.reporting import ChannelFigures, Figures, Spread
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from tests.fixtures.database import Database
from tests.spark import report_reference
from tests.spark.report_history import GIANT, frame, nasty, policies, served_in_line_and_in_turn, store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def figures(spark: "SparkSession") -> Figures:
    """What the report finds."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    return measure(frame(spark, nasty()), policies=policies(spark), bucket=timedelta(seconds=37))


@pytest.fixture
def reference(database: Database) -> Database:
    """A database that has the same history."""
    store(database, nasty())
    database.execute(report_reference.VIEW)
    return database


def _spread(spread: Spread) -> list[int]:
    return [microseconds(value) for value in (spread.p50, spread.p95, spread.p99, spread.max)]


def _expected(database: Database, sql: str, **parameters: object) -> dict[tuple[str, str], Any]:
    return {(row.queue, row.channel): row for row in database.rows(sql, **parameters)}


def _by_name(figures: Figures) -> dict[tuple[str, str], ChannelFigures]:
    return {(channel.queue, channel.channel): channel for channel in figures.channels}


def test_percentiles_of_channels(figures: Figures, reference: Database) -> None:
    """Waits, services and slowdowns of each channel are the server's, to the microsecond; so are counts of outcomes."""
    expected = _expected(reference, report_reference.CHANNELS)
    assert len(expected) == 14
    found = {
        name: (
            one.attempts, _spread(one.wait), _spread(one.service),
            [round(value * 1000) for value in (one.slowdown.p50, one.slowdown.p95, one.slowdown.p99, one.slowdown.max)],
            [getattr(one.outcomes, outcome) for outcome in one.outcomes.__dataclass_fields__],
        )
        for name, one in _by_name(figures).items()
    }  # fmt: skip
    assert found == {
        name: (row.attempts, row.wait, row.service, row.slowdown, row.outcomes) for name, row in expected.items()
    }
    for name, one in _by_name(figures).items():
        assert microseconds(one.mean_wait) == pytest.approx(float(expected[name].mean_wait), abs=1)


def test_queues(figures: Figures, reference: Database) -> None:
    """So are the figures of whole queues: percentiles, the time that anybody was served, the greatest concurrency."""
    found = [
        (one.queue, one.channels, instant_microseconds(one.from_), instant_microseconds(one.to), _spread(one.wait),
         _spread(one.service), microseconds(one.busy), one.greatest_concurrency)
        for one in figures.queues
    ]  # fmt: skip
    assert found == [tuple(row) for row in sorted(reference.rows(report_reference.QUEUES))]


def test_concurrency_and_rates(figures: Figures, reference: Database) -> None:
    """The greatest concurrency is that of counting at each start; the greatest burst that of the cell rate algorithm
    message by message.
    """
    channels = _by_name(figures)
    expected = _expected(reference, report_reference.CONCURRENCY)
    assert {name: one.greatest_concurrency for name, one in channels.items()} == {
        name: row.concurrency for name, row in expected.items()
    }
    expected = _expected(reference, report_reference.RATES)
    assert {name: one.greatest_rate for name, one in channels.items()} == {
        name: row.rate for name, row in expected.items()
    }
    expected = _expected(reference, report_reference.BURSTS)
    assert {name: one.greatest_burst for name, one in channels.items() if one.greatest_burst is not None} == {
        name: row.burst for name, row in expected.items()
    }
    assert len(expected) == 3
    assert channels["documents", GIANT].over_concurrency
    assert channels["documents", "small-2"].over_rate


def test_starvation(figures: Figures, reference: Database) -> None:
    """How long a channel was backlogged and starved, in all and at the longest, is what sets of ranges say."""
    expected = _expected(reference, report_reference.STARVATION)
    for name, one in _by_name(figures).items():
        row, longest = expected[name], one.longest_starvation
        found = longest and [
            microseconds(longest.lasted), instant_microseconds(longest.from_), instant_microseconds(longest.to)
        ]  # fmt: skip
        assert (microseconds(one.backlogged), microseconds(one.starved)) == (row.backlogged, row.starved), name
        assert found == row.longest, name


@pytest.mark.parametrize("queue", ["documents", "mails"])
def test_windows(figures: Figures, reference: Database, queue: str) -> None:
    """So is the course of a queue over time, windows in which nothing happened included."""
    one = next(one for one in figures.queues if one.queue == queue)
    expected = reference.rows(report_reference.WINDOWS, window=microseconds(one.window), queue=queue)
    found = [
        (instant_microseconds(w.begin), w.started, w.completed, w.waiting, _spread(w.wait) if w.wait else None)
        for w in one.windows
    ]
    assert found == [
        (row.begin, row.started, row.completed, row.waiting, row.wait if row.started else None) for row in expected
    ]


@pytest.mark.parametrize("queue", ["documents", "mails"])
def test_fairness(figures: Figures, reference: Database, queue: str) -> None:
    """Fair shares are those of filling up round by round; the index and what channels were denied follow from them."""
    one = next(one for one in figures.queues if one.queue == queue)
    names = {"width": microseconds(one.fairness_window), "queue": queue}
    sql = report_reference.SHARES
    for name, value in names.items():
        sql = sql.replace(f":{name}", f"'{value}'" if isinstance(value, str) else str(value))
    reference.execute(sql.replace(":", "\\:").replace("\\:\\:", "::"))
    index = reference.rows(report_reference.INDEXES)[0]
    assert 0 < one.contended == pytest.approx(index.contended)
    assert one.fairness == pytest.approx(index.fairness)
    assert one.least_fairness == pytest.approx(index.least_fairness)
    for row in reference.rows(report_reference.DENIED, **names):
        channel = _by_name(figures)[queue, row.channel]
        assert channel.fair_share == (None if row.fair_share is None else pytest.approx(row.fair_share)), row.channel
        assert microseconds(channel.denied_wait) == pytest.approx(row.denied, abs=1), row.channel
        assert channel.denied_wait <= channel.mean_wait


def test_buckets_do_not_matter(spark: "SparkSession", figures: Figures) -> None:
    """The same figures come from one bucket as from hundreds."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    assert measure(frame(spark, nasty()), policies=policies(spark), bucket=timedelta(days=30)) == figures


def test_a_fair_queue_is_called_fair_and_a_line_unfair(spark: "SparkSession") -> None:
    """Small tenants behind a giant are denied their share by a line, and of the same messages by turns nobody is."""
    from sqlalchemy_fairqueue.spark.reporting.measurement import measure  # noqa: PLC0415

    figures = measure(frame(spark, served_in_line_and_in_turn()))
    by_turns, in_line = figures.queues
    assert (by_turns.queue, in_line.queue) == ("by turns", "in line")
    assert by_turns.fairness is not None
    assert in_line.fairness is not None
    assert by_turns.fairness > 0.95
    assert in_line.fairness < 0.5
    assert max(one.denied_wait for one in figures.of("by turns")) < timedelta(seconds=1)
    *small, giant = figures.of("in line")
    assert (giant.channel, giant.denied_wait) == (GIANT, timedelta())
    for one in small:
        assert timedelta(seconds=10) < one.denied_wait <= one.mean_wait
        assert one.longest_starvation is not None
        assert one.longest_starvation.lasted > timedelta(seconds=20)
        assert one.fair_share is not None
        assert one.fair_share < 0.5


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
