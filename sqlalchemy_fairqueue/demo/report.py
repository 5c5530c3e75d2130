"""Writes a fairness report of the demo's fair half, and replays that half's files first come, first served.

The other half of the demo really serves first come, first served, so the replay's forecast can be compared with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from sqlalchemy_fairqueue.demo.run import BOB, File
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.reporting.history import RecordedHistory  # needs the extra report


FIRST_COME = Scenario(name="first come, first served", discipline="fifo")


def files_ahead(files: Sequence[File]) -> float:
    """Return how many files were done, on average, between the upload of a small customer's file and its result."""
    ends = sorted(file.parsed for file in files)
    small = [file for file in files if file.customer != BOB]
    return mean(bisect_left(ends, file.parsed) - bisect_right(ends, file.uploaded) for file in small)


def make_report(engine: Engine, page: Path, tell: Callable[[str], None]) -> str:
    """Write a report of a database's history to *page*; return a text that names the page and a replay's forecast."""
    from sqlalchemy_fairqueue.reporting import read_history, report

    tell("report: reading the history")
    history = read_history(engine)
    made = report(
        history,
        scenarios=[FIRST_COME],
        output=page,
        title="Bob and the ten others: how fair it was",
        progress=lambda name, number, count: tell(f"report: {name} ({number + 1} of {count})"),
    )
    (again,) = made.replays[0].replayed
    return (
        f"\nHow fair it was, from {history.attempts.num_rows:,} recorded attempts, as a page: [bold]{page}[/]\n"
        f"A replay of the fair half itself is {again.replay_error or 0.0:.0%} off its record.\nFrom the fair half, a "
        "replay foresaw that first come, first served a small customer's file waits for "
        f"[bold]{forecast(history):,.0f}[/] others."
    )


def forecast(history: RecordedHistory, scenario: Scenario = FIRST_COME) -> float:
    """Return how many files a small customer's file waits for on average if *history* is replayed under *scenario*."""
    from sqlalchemy_fairqueue.reporting.simulation.replay import replay_queue

    rows = replay_queue(history.attempts, scenario).to_pylist()
    times = [(row["channel"], row["enqueued_at"], row["finished_at"]) for row in rows if row["outcome"] == "completed"]
    return files_ahead([File(name, uploaded.timestamp(), parsed.timestamp()) for name, uploaded, parsed in times])
