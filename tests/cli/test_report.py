from pathlib import Path

import pytest
from pyarrow import parquet
from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.fixtures.database import Database
from tests.reporting.tables import labelled
from tests.spark.report_history import GIANT, served_in_line_and_in_turn, store

_SCENARIOS = """
[[scenario]]
name = "two at once"
workers = 2
"""


@pytest.fixture
def recorded(database: Database, engine: Engine) -> Engine:
    """A queue that served a giant in line before ten small ones, and one that served them by turns."""
    store(database, served_in_line_and_in_turn())
    return engine


@pytest.mark.usefixtures("recorded")
def test_from_a_database_to_a_page(cli: Cli, tmp_path: Path) -> None:
    """The history becomes a page and a document of all figures, with the scenarios beside the record."""
    (tmp_path / "scenarios.toml").write_text(_SCENARIOS)
    # Excel begins a file with a BOM.
    (tmp_path / "labels.csv").write_text('giant,"Giant, Inc."\n', encoding="utf-8-sig")
    scenarios = ("--scenario", "fifo", "--scenario", "scenarios.toml")
    page = ("--out", "page.html", "--labels", "labels.csv", "--title", "All <of> it")
    made = cli("report", "--queue", "in line", *scenarios, *page, "--json")
    assert made.status == 0, made.err
    document = made.document
    (queue,) = document["queues"]
    assert (queue["queue"], queue["attempts"], queue["channels"]) == ("in line", 800, 11)
    assert sum(window["started"] for window in queue["windows"]) == 800
    worst = document["channels"][0]
    assert worst["denial"]["culprits"][0]["channel"] == "giant"
    again, fifo, two = document["replays"]
    assert [one["scenario"] for one in document["replays"]] == ["as recorded, replayed", "fifo", "two at once"]
    # The record is that of one line, so that one line is what it was, and turns are not.
    assert fifo["queues"][0]["wait"] == queue["wait"]
    assert again["replayed"][0]["trusted"] is False
    assert two["replayed"][0]["workers"] == 2
    assert "fairqueue: reading the history" in made.err
    assert "fairqueue: drawing the page" in made.err
    assert "All &lt;of&gt; it" in (tmp_path / "page.html").read_text()
    told = cli("report", "--queue", "in line", "--scenario", "fifo").out
    assert "do not trust the forecasts of queue 'in line'" in told
    replayed = [line.split()[2:4] for line in told.splitlines() if line.startswith("in line  ")][-3:]
    assert replayed == [["as", "recorded"], ["as", "recorded,"], ["fifo", "1.0"]]


@pytest.mark.usefixtures("recorded")
def test_an_objective_makes_the_status(cli: Cli) -> None:
    """With --slo the status tells a scheduler whether each tenant's wait keeps the target."""
    kept = cli("report", "--queue", "by turns", "--slo", "p95 < 2 m", "--json")
    assert kept.status == 0, kept.err
    assert (kept.document["slo"], kept.document["late"], kept.document["output"]) == ("p95 < 120 s", [], None)
    missed = cli("report", "--queue", "in line", "--slo", "p95 < 2 s", "--json")
    assert missed.status == 1
    assert missed.document["slo"] == "p95 < 2 s"
    assert len(missed.document["late"]) == 11
    assert "11 of 11 channels miss p95 < 2 s" in cli("report", "--queue", "in line", "--slo", "p95<2s").out


@pytest.mark.usefixtures("recorded")
def test_refusals(cli: Cli) -> None:
    """Bad values are refused in words, before anything is written."""
    for arguments, status, words in (
        (["--slo", "p95"], 2, "is no objective; give one like 'p95 < 2 s'"),
        (["--engine", "duck"], 2, "--engine 'duck' is none of local, spark"),
        (["--scenario", "lifo"], 2, "--scenario 'lifo' is none of fifo, fair, by-cost, by-seconds, and no .toml file"),
        (["--out", "nowhere/page.html"], 2, "--out 'nowhere/page.html' cannot be written"),
        (["--window", "0"], 2, "--window is 0"),
        (["--labels", "nowhere.csv"], 1, "the labels in 'nowhere.csv' cannot be read"),
        (["--since", "yesterday"], 2, "'yesterday' is no time; give one like 2026-11-21T14:30:00Z, or 7d"),
        (["--label-column", "customer"], 2, "--label-column names a column of an --archive"),
        (["--archive", "nowhere"], 5, "there is no archive at 'nowhere'"),
        (["--queue", "nothing"], 1, "the history has no attempts"),
    ):
        found = cli("report", *arguments)
        assert (found.status, words in found.err) == (status, True), found.err
        assert not Path("fairness.html").exists()


@pytest.mark.usefixtures("recorded")
def test_a_page_of_one_tenant(cli: Cli, tmp_path: Path) -> None:
    """--tenant makes a page about one, and leaves the document whole."""
    made = cli("report", "--queue", "in line", "--tenant", "small-3", "--out", "page.html", "--json")
    assert made.status == 0, made.err
    assert len(made.document["channels"]) == 11
    page = (tmp_path / "page.html").read_text()
    assert ("small-3" in page, "small-4" in page, "giant" in page) == (True, False, False)
    nobody = cli("report", "--queue", "in line", "--tenant", "nobody")
    assert (nobody.status, "no attempts of channel 'nobody'" in nobody.err) == (1, True)


@pytest.mark.usefixtures("recorded")
def test_names_from_a_column_of_an_archive(cli: Cli, tmp_path: Path) -> None:
    """--label-column names tenants on the page; the document keeps the channels."""
    (tmp_path / "archive").mkdir()
    parquet.write_table(labelled({GIANT: "Big & Co."}), tmp_path / "archive" / "part.parquet")
    archive = ("--archive", "archive", "--label-column", "customer")
    made = cli("report", "--queue", "in line", *archive, "--out", "page.html", "--json")
    assert made.status == 0, made.err
    assert GIANT in {one["channel"] for one in made.document["channels"]}
    assert "Big &amp; Co." in (tmp_path / "page.html").read_text()
    wrong = cli("report", "--archive", "archive", "--label-column", "owner")
    assert (wrong.status, "no column 'owner' of labels: it has id, queue" in wrong.err) == (2, True), wrong.err


@pytest.mark.usefixtures("recorded")
def test_times_narrow_the_history(cli: Cli) -> None:
    """--since and --until take instants, and durations before now."""
    some = cli("report", "--until", "2026-03-28T23:50:30", "--json")
    assert some.status == 0, some.err
    assert all(queue["attempts"] < 800 for queue in some.document["queues"])
    assert cli("report", "--since", "2026-03-28T00:00:00Z", "--json").status == 0
    assert cli("report", "--until", "36500d", "--json").status == 1
