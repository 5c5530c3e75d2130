"""Targets of the benchmarks: ratios to the best peer, verdicts, and the tables that show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.field.outcome import FieldReport, Outcome
from tests.bench.field.tables import tables
from tests.bench.field.targets import Row, rows

if TYPE_CHECKING:
    from pathlib import Path


def _told(**rates: list[float]) -> FieldReport:
    told = FieldReport(contestants=dict.fromkeys(rates, "1"))
    for name, found in rates.items():
        told.outcomes += [
            Outcome("drain", name, number, {"messages/s": rate} if rate else {}) for number, rate in enumerate(found)
        ]
    return told


def _drain(told: FieldReport) -> Row:
    return next(line for line in rows(told) if line.what == "drain in batches")


def test_the_best_peer_is_compared_with_round_by_round() -> None:
    """Ratios are taken within rounds, to the peer that is best over all; a native engine is not a Python peer."""
    line = _drain(_told(fairqueue=[10.0, 30.0], pgqueuer=[5.0, 10.0], oban=[4.0, 4.0], awa=[50.0, 50.0]))
    assert (line.against, line.ratios, line.verdict) == ("pgqueuer", [2.0, 3.0], "reached")
    assert line.others["awa"] == [10.0, 5.0]


def test_a_round_in_which_the_best_peer_failed_does_not_count() -> None:
    """There is nothing to divide by, and rounds do not slip."""
    assert _drain(_told(fairqueue=[10.0, 30.0, 18.0], pgqueuer=[5.0, 0.0, 9.0])).ratios == [2.0, 2.0]


def test_verdicts() -> None:
    """The median decides; a line that nobody measured says so."""
    assert _drain(_told(fairqueue=[10.0, 10.0, 99.0], pgqueuer=[9.0, 9.0, 9.0])).verdict == "missed"
    assert _drain(_told(fairqueue=[10.0])).verdict == "not measured"
    assert Row("a", "b", 1.25, "less", [1.2, 1.0, 9.0]).verdict == "reached"
    assert Row("a", "b", None, "less", [1.2]).verdict == "no reach set"


def test_runs_are_told_together(tmp_path: Path) -> None:
    """What runs leave behind is enough for the tables of the docs; a figure with several rounds has its spread."""
    first = _told(fairqueue=[10.0, 30.0, 20.0], pgqueuer=[5.0, 10.0, 10.0])
    first.write(tmp_path / "one", page=False)
    second = FieldReport(contestants={"fairqueue": "1"}, bound=[0.5])
    second.outcomes.append(Outcome("zipf", "fairqueue", 0, {"jain, least": 0.995}))
    second.outcomes.append(Outcome("future", "fairqueue", 0, {"sessions us, to before": 0.916}))
    second.write(tmp_path / "other", page=False)
    found = tables(FieldReport.read([tmp_path / "one" / "field.json", tmp_path / "other" / "field.json"]))
    assert "| drain in batches | pgqueuer | >= 2.0 | **2 (2 to 3)** | reached |\n" in found
    assert "| fair, batch 100 | the unfair bound | >= 0.75 | **0.5** | missed |\n" in found
    assert "\n| contestant | drain in batches, to pgqueuer |" in found
    assert "\n| pgqueuer | 1 |" in found
    assert "| fairqueue | 20 (10 to 30) |" in found
    assert "| fairqueue | 0.995 |" in found
    assert found.endswith("first:\n\n| for tomorrow |\n| --- |\n| 0.916 |\n")


def test_who_is_unfair_by_cost_is_named() -> None:
    """The table says whose costly tenants get more than the cheap ones, and how much more."""
    told = FieldReport(contestants=dict.fromkeys(("fairqueue", "fairqueue_by_cost", "pgqueuer", "oban"), "1"))
    for name, ratio in {"fairqueue": 9.5, "fairqueue_by_cost": 1.02, "pgqueuer": 8.7}.items():
        told.outcomes.append(Outcome("costs", name, 0, {"costly to cheap": ratio, "jain by cost, least": 0.6}))
    found = tables(told)
    assert "\nFair by cost: fairqueue_by_cost (1.02).\nUnfair by cost: fairqueue (9.5), pgqueuer (8.7).\n" in found
    assert "fair by cost" not in tables(_told(fairqueue=[10.0])).lower()
    line = next(line for line in rows(told) if line.what == "Jain's index by cost, least second")
    assert (line.verdict, line.others) == ("missed", {"fairqueue": [0.6], "pgqueuer": [0.6]})
