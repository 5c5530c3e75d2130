"""Reports in the process: replays with their error, the policy that is advised, and labels of tenants."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import Scenario, read_archive, report
from sqlalchemy_fairqueue.reporting.history import RecordedHistory
from sqlalchemy_fairqueue.reporting.reports import Objective
from sqlalchemy_fairqueue.reporting.simulation.replay import replay_queue
from tests.reporting.tables import labelled, table
from tests.spark.report_history import GIANT, nasty, row, served_in_line_and_in_turn


def _served(*whales: str, **known: Any) -> RecordedHistory:
    """Messages of whales that take two seconds each, and a minnow's of a tenth every three seconds, in turn."""
    came = [(channel, 0, 2_000_000) for channel in whales]
    came += [("minnow", 3_000_000 * number + 700_000, 100_000) for number in range(1, 30)]
    names = sorted({channel for channel, _, _ in came})
    rows = [
        row(number, "documents", (1 + names.index(channel), channel), (at, at, at + lasts))
        for number, (channel, at, lasts) in enumerate(came)
    ]
    return RecordedHistory(replay_queue(table(rows), Scenario(name="turns", workers=4)), policies_known=True, **known)


@pytest.fixture
def history() -> RecordedHistory:
    """One whale has 200 messages."""
    return _served(*["whale"] * 200)


def test_a_policy_is_advised_with_its_effect(history: RecordedHistory) -> None:
    """Where a tenant misses the objective behind one that holds all workers, a limit for that one is advised; a replay
    under this limit has the effect that is told.
    """
    made = report(history, output=None, objective="p95 < 500 ms")
    assert [one.channel for one in made.late] == ["whale", "minnow"]
    (again,) = made.replays[0].replayed
    assert again.replay_error == pytest.approx(0, abs=0.01)
    (advice,) = made.advice
    assert (advice.queue, advice.channel, advice.reason) == ("documents", "whale", "")
    assert advice.max_concurrency == 2
    assert advice.before > timedelta(milliseconds=500)
    assert advice.after == timedelta()
    limited = Scenario(name="limited", policies={"whale": ChannelPolicy(max_concurrency=advice.max_concurrency)})
    replayed = report(history, scenarios=[limited], output=None).replays[1]
    waits = {one.channel: one.mean_wait for one in replayed.channels}
    assert waits == {"minnow": advice.after, "whale": advice.own_after}


def test_a_plan_is_advised_where_many_hold_the_workers() -> None:
    """Where the tenants of a plan hold the workers together, a limit for one of them helps nobody, and one for the plan
    is advised.
    """
    whales = ["whale-0", "whale-1", "whale-2"]
    history = _served(*whales * 80, plans={("documents", name): "bulk" for name in whales})
    made = report(history, output=None, objective="p95 < 200 ms")
    (advice,) = made.advice
    assert (advice.plan, advice.max_concurrency) == ("bulk", 1)
    assert advice.before > timedelta(milliseconds=100)
    assert advice.after == timedelta()


def test_without_an_objective_and_denials_nothing_is_advised(history: RecordedHistory) -> None:
    """In a fair queue nobody is denied its share, and no policy is tried."""
    made = report(history, output=None)
    assert (made.advice, made.late) == ((), ())


def test_no_forecast_is_made_from_a_record_that_the_replay_does_not_know() -> None:
    """A line cannot be replayed by turns: its error is told, and no policy is advised."""
    rows = table(served_in_line_and_in_turn())
    made = report(RecordedHistory(rows), output=None, objective="p95 < 1 s")
    error = {one.queue: one for one in made.replays[0].replayed}
    assert error["by turns"].trusted
    assert not error["in line"].trusted
    advice = {one.queue: one for one in made.advice}
    assert (advice["in line"].channel, advice["in line"].max_concurrency) == ("giant", None)
    assert advice["in line"].reason


def test_steps_are_told(history: RecordedHistory, tmp_path: Path) -> None:
    """Each step of a report is told before it begins."""
    told: list[tuple[str, int, int]] = []
    page = tmp_path / "page.html"
    made = report(
        history, scenarios=[Scenario(name="one line", discipline="fifo")], output=page,
        progress=lambda *step: told.append(step),
    )  # fmt: skip
    assert (made.path, page.is_file()) == (page, True)
    names = ["measuring the record", "replaying the record", "replaying 'one line'", "trying policies"]
    assert told == [(name, number, 5) for number, name in enumerate([*names, "drawing the page"])]


@pytest.mark.parametrize(
    ("text", "statistic", "limit"),
    [
        ("p95 < 2 s", "p95", timedelta(seconds=2)),
        ("mean wait<500ms", "mean", timedelta(milliseconds=500)),
        (" MAX < 1h 30m ", "max", timedelta(minutes=90)),
    ],
)
def test_objectives_are_read(text: str, statistic: str, limit: timedelta) -> None:
    """An objective is a statistic and a duration."""
    assert Objective.parse(text) == Objective(statistic, limit)


@pytest.mark.parametrize("text", ["", "p95", "p95 > 2 s", "p90 < 2 s", "p95 < two seconds", "p95 < 2"])
def test_other_objectives_are_refused(text: str) -> None:
    """Anything else is named."""
    with pytest.raises(ValueError, match=r"is no (objective|duration); give one like"):
        Objective.parse(text)


def test_a_column_names_tenants() -> None:
    """Channels have the labels of the column, and those without one their names; two customers of one name are told
    apart by their channels. The figures keep the channels.
    """
    history = RecordedHistory(labelled({GIANT: "Big & Co.", "small-1": "Kim", "small-2": "Kim"}))
    made = report(history, labels="customer", output=None, replayed=False)
    assert made.labels == {GIANT: "Big & Co.", "small-1": "Kim (small-1)", "small-2": "Kim (small-2)"}
    assert {one.channel for one in made.figures.channels} >= {GIANT, "small-1", "small-4"}


def test_the_last_label_counts() -> None:
    """A tenant whose name changed has the name of the attempt that ended last, in whatever order the rows come."""
    attempts = nasty()
    rows, last = table(attempts), max(one.finished_at for one in attempts if one.channel == GIANT)
    names = pa.array(["new" if one.finished_at == last else "old" for one in attempts], pa.string())
    named = rows.append_column("customer", names)
    for shuffled in (named, named.take(list(reversed(range(len(named)))))):
        assert report(RecordedHistory(shuffled), labels="customer", output=None, replayed=False).labels[GIANT] == "new"


def test_an_archive_may_have_labels(tmp_path: Path) -> None:
    """A further column of an archive is read where it is asked for; one that is not there is named."""
    parquet.write_table(labelled({GIANT: "Big & Co."}), tmp_path / "part.parquet")
    history = read_archive(tmp_path, label="customer")
    assert report(history, labels="customer", output=None, replayed=False).labels == {GIANT: "Big & Co."}
    with pytest.raises(InvalidArgument, match="the history has no column 'owner' of labels: it has id, queue"):
        read_archive(tmp_path, label="owner")
    with pytest.raises(InvalidArgument, match="the history has no column 'customer' of labels"):
        report(read_archive(tmp_path), labels="customer", output=None)
