"""The fairness report of the demo: made in this process from the history of the fair queue.

The report has a replay beside it: the same files, first come, first served, as a simulator of the queue has it; what
the other half of the demo does for real. The forecast is held against that half.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from sqlalchemy_fairqueue.demo.run import BOB, File
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.reporting.history import RecordedHistory  # needs the extra report

_TITLE = "Bob and the ten others: how fair it was"


def files_ahead(files: Sequence[File]) -> float:
    """How many files were done between the upload of a small customer's file and its result, on average.

    It is a wait measured in work: it does not change with the machine's speed, which is never the same for two runs.
    """
    ends = sorted(file.parsed for file in files)
    small = [file for file in files if file.customer != BOB]
    return mean(bisect_left(ends, file.parsed) - bisect_right(ends, file.uploaded) for file in small)


class Forecast(NamedTuple):
    """What a report tells of the other half.

    Attributes:
        attempts: The attempts of the history.
        files_ahead: As a replay foresees it for the same files first come, first served.
        error: How far a replay of the record itself is from the record, as a part of the times in it.
    """

    attempts: int
    files_ahead: float
    error: float


def make_report(engine: Engine, page: Path, step: Callable[[str, int, int], None]) -> Forecast:
    """Make a report of the history of a database.

    Args:
        engine: The database.
        page: Where the report is written.
        step: Called before each step with its name, its number from 0 and the number of all steps.
    """
    from sqlalchemy_fairqueue.reporting import read_history, report

    step("reading the history", 0, 6)
    history = read_history(engine)
    made = report(
        history,
        scenarios=[_fifo()],
        output=page,
        title=_TITLE,
        progress=lambda name, number, count: step(name, number + 1, count + 1),
    )
    (again,) = made.replays[0].replayed
    return Forecast(history.attempts.num_rows, forecast(history), again.replay_error or 0.0)


def _fifo(workers: float | None = None) -> Scenario:
    return Scenario(name="first come, first served", discipline="fifo", workers=workers)


def forecast(history: RecordedHistory, workers: float | None = None) -> float:
    """`files_ahead` as a replay foresees it for the same files first come, first served.

    Args:
        history: The history of the fair half.
        workers: Files handled at once. None: as many as the history shows.
    """
    from sqlalchemy_fairqueue.reporting.simulation.replay import replay_queue

    rows = replay_queue(history.attempts, _fifo(workers)).to_pylist()
    start = min(row["enqueued_at"] for row in rows)
    times = [[(row[at] - start).total_seconds() for at in ("enqueued_at", "finished_at")] for row in rows]
    files = [
        File(row["channel"], *time) for row, time in zip(rows, times, strict=True) if row["outcome"] == "completed"
    ]
    return files_ahead(files)
