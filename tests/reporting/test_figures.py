"""The figures of the report, against PostgreSQL's own account of the same history."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import ChannelFigures, Figures, HistoryEmpty, Spread
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from tests.fixtures.database import Database
from tests.reporting.tables import known_policies, measure_table, table
from tests.spark import report_reference
from tests.spark.report_history import GIANT, POLICIES, nasty, row, served_in_line_and_in_turn, store


@pytest.fixture(scope="module")
def figures() -> Figures:
    """The figures that the report takes."""
    return measure_table(table(nasty()), policies=known_policies())


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


def test_channels(figures: Figures, reference: Database) -> None:
    """Waits, services and slowdowns of each channel are the server's, to the microsecond; so are counts of outcomes.
    The greatest concurrency is that of counting at each start.
    """
    expected = _expected(reference, report_reference.CHANNELS)
    assert len(expected) == 14
    for name, one in _by_name(figures).items():
        had, slowdown = expected[name], one.slowdown
        found = (one.attempts, _spread(one.wait), _spread(one.service), one.greatest_concurrency, one.greatest_rate)
        assert found == (had.attempts, had.wait, had.service, had.concurrency, had.rate), name
        slowdowns = (slowdown.p50, slowdown.p95, slowdown.p99, slowdown.max)
        assert [round(value * 1000) for value in slowdowns] == had.slowdown, name
        assert [getattr(one.outcomes, outcome) for outcome in one.outcomes.__dataclass_fields__] == had.outcomes, name
        assert microseconds(one.mean_wait) == pytest.approx(float(had.mean_wait), abs=1)
    assert expected.keys() == _by_name(figures).keys()
    assert _by_name(figures)["documents", GIANT].over_concurrency


def test_queues(figures: Figures, reference: Database) -> None:
    """So are the figures of whole queues: percentiles, the time that anybody was served, the greatest concurrency."""
    found = [
        (one.queue, one.channels, instant_microseconds(one.from_), instant_microseconds(one.to), _spread(one.wait),
         _spread(one.service), microseconds(one.busy), one.greatest_concurrency)
        for one in figures.queues
    ]  # fmt: skip
    assert found == [tuple(row) for row in sorted(reference.rows(report_reference.QUEUES))]


def test_bursts(figures: Figures, reference: Database) -> None:
    """The greatest burst is that of the cell rate algorithm message by message."""
    expected = {name: row.burst for name, row in _expected(reference, report_reference.BURSTS).items()}
    channels = _by_name(figures)
    bursts = {name: one.greatest_burst for name, one in channels.items() if one.greatest_burst is not None}
    assert (bursts, len(bursts)) == (expected, 3)
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
    for had in reference.rows(report_reference.DENIED, **names):
        channel = _by_name(figures)[queue, had.channel]
        assert channel.fair_share == (None if had.fair_share is None else pytest.approx(had.fair_share)), had.channel
        assert microseconds(channel.denied_wait) == pytest.approx(had.denied, abs=1), had.channel
        assert channel.denied_wait <= channel.mean_wait


@pytest.mark.whole
def test_compiled_or_not_the_figures_are_the_same(figures: Figures) -> None:
    """Numba's code gives the figures that Python gives."""
    assert measure_table(table(nasty()), policies=known_policies(), compile_=True) == figures


def test_encoded_columns_are_read_as_they_are(figures: Figures) -> None:
    """Texts of a table may be encoded by dictionaries, as they come from a database."""
    rows = table(nasty())
    for name in ("queue", "channel", "outcome"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].dictionary_encode())
    assert measure_table(rows, policies=known_policies()) == figures


def test_a_fair_queue_is_called_fair_and_a_line_unfair() -> None:
    """Small tenants behind a giant are denied their share by a line, and of the same messages by turns nobody is."""
    figures: Any = measure_table(table(served_in_line_and_in_turn()))
    by_turns, in_line = figures.queues
    assert (by_turns.queue, in_line.queue) == ("by turns", "in line")
    assert by_turns.fairness > 0.95
    assert in_line.fairness < 0.5
    assert max(one.denied_wait for one in figures.of("by turns")) < timedelta(seconds=1)
    *small, giant = figures.of("in line")
    assert (giant.channel, giant.denied_wait) == (GIANT, timedelta())
    for one in small:
        assert timedelta(seconds=10) < one.denied_wait <= one.mean_wait
        assert one.longest_starvation.lasted > timedelta(seconds=20)
        assert one.fair_share < 0.5
        assert [(culprit.channel, culprit.part) for culprit in one.denial.culprits] == [(GIANT, pytest.approx(1.0))]


def test_what_some_were_denied_others_got(figures: Figures) -> None:
    """The messages that channels got above their shares are as many as those that others were denied; the worst
    stretch of a channel lies between its first message and its last.
    """
    for queue in figures.queues:
        members = figures.of(queue.queue)
        width = queue.fairness_window
        denied = sum(one.denied_wait / width * one.attempts for one in members)
        assert sum(one.above_share or 0.0 for one in members) == pytest.approx(denied, rel=1e-4)
        for one in members:
            assert (one.denial is None) == (one.denied_wait == timedelta())
            if one.denial is not None:
                assert queue.from_ - width <= one.denial.from_ < one.denial.to <= queue.to + width
                assert 0 < one.denial.part <= 1 + 1e-9
                assert all(culprit.channel != one.channel for culprit in one.denial.culprits)
                assert sum(culprit.part for culprit in one.denial.culprits) <= 1 + 1e-9


def test_a_history_of_several_databases_is_refused() -> None:
    """An id that stands for two channels is named."""
    rows = table(nasty(attempts=3))
    names = [name.as_py()[1:] for name in rows["channel"]]
    other = rows.set_column(rows.schema.get_field_index("channel"), "channel", [names])
    with pytest.raises(InvalidArgument, match=r"channel id 1 is channel 'giant' of queue 'documents' .*'iant'"):
        measure_table(pa.concat_tables([rows, other]))


def test_what_is_missing_is_named() -> None:
    """A table that is no history, and an empty one, are refused in words."""
    rows = table(nasty(attempts=1))
    with pytest.raises(InvalidArgument, match="the history lacks ready_at, outcome: it has id, "):
        measure_table(rows.drop_columns(["ready_at", "outcome"]))
    with pytest.raises(HistoryEmpty, match="the history has no attempts; queues record them after"):
        measure_table(rows.slice(0, 0))


def _costly(cost: dict[str, int]) -> pa.Table:
    """A worker serves two tenants in turn, of whom each always has messages: ten seconds, a message a tenth."""
    rows = []
    for number in range(100):
        name, at = ("cheap", "dear")[number % 2], 100_000 * number
        rows.append(row(number, "q", (number % 2, name), (0, at, at + 100_000), cost=cost[name]))
    return table(rows)


def test_shares_by_cost_tell_who_was_denied_and_because_of_whom() -> None:
    """Turns are fair by messages. By cost the one whose messages are dear got nine tenths, where a half was its share:
    of 500 that were served, the other one was denied what was missing to 250.
    """
    figures: Any = measure_table(_costly({"cheap": 1, "dear": 9}))
    cheap, dear = sorted(figures.channels, key=lambda one: one.channel)
    (queue,) = figures.queues
    assert (cheap.denial, dear.denial) == (None, None)
    assert queue.fairness == pytest.approx(1, abs=0.01)
    assert [one.by_cost.cost for one in (cheap, dear, queue)] == [50, 450, 500]
    # All that it had left was less than its share in the last windows.
    assert cheap.by_cost.denied_cost == pytest.approx(dear.by_cost.above_share)
    assert 0 < cheap.by_cost.denied_cost < 250
    (culprit,) = cheap.by_cost.denial.culprits
    assert (culprit.channel, round(culprit.part, 9)) == ("dear", 1)
    assert dear.by_cost.denial is None
    assert dear.by_cost.fair_share > 1


def test_shares_by_cost_follow_the_costs() -> None:
    """Costs that are all the same say nothing, whatever they are; nor do those that cost nothing fail."""
    for cost in (1, 7):
        assert measure_table(_costly({"cheap": cost, "dear": cost})).queues[0].by_cost is None
    denied: list[list[Any]] = [
        [one.by_cost for one in measure_table(_costly({"cheap": cheap, "dear": dear})).channels]
        for cheap, dear in ((0, 5), (1, 9), (10, 90))
    ]
    assert (0, 0) in [(one.cost, one.denied_cost) for one in denied[0]]
    assert [one.denied_cost for one in denied[2]] == pytest.approx([10 * one.denied_cost for one in denied[1]])


def test_plans_are_taken_together(figures: Figures) -> None:
    """The attempts of the channels of a plan have one spread, and parts of the queue; nobody's plan is a plan too."""
    plans = dict.fromkeys(POLICIES, "gold") | {"small-3": "free"}
    policies = {key: replace(policy, plan=plans[key[1]]) for key, policy in known_policies().items()}
    with_plans = measure_table(table(nasty()), policies=policies)
    assert figures.plans == ()
    assert [one.wait for one in with_plans.channels] == [one.wait for one in figures.channels]
    found = {one.plan: one for one in with_plans.plans}
    assert {one.queue for one in with_plans.plans} == {"documents"}
    assert found.keys() == {"gold", "free", None}
    for part in ("part", "service_part"):
        assert sum(getattr(one, part) for one in found.values()) == pytest.approx(1)
    (alone,) = [one for one in figures.of("documents") if one.channel == "small-3"]
    free = found["free"]
    assert (free.channels, free.cost) == (1, alone.by_cost and alone.by_cost.cost)
    for name in ("attempts", "wait", "mean_wait", "denied_wait"):
        assert getattr(free, name) == getattr(alone, name), name
    members = [one for one in with_plans.of("documents") if one.policy and one.policy.plan == "gold"]
    gold = found["gold"]
    assert (gold.channels, gold.attempts) == (len(members), sum(one.attempts for one in members))
    assert gold.denied_channels == sum(1 for one in members if one.denied_wait)
    assert gold.wait.max == max(one.wait.max for one in members)
    assert min(one.wait.p95 for one in members) <= gold.wait.p95 <= max(one.wait.p95 for one in members)
