"""The fairness report of the demo: made in this process from the history of the fair queue.

The report has a replay beside it: the same files, first come, first served, as a simulator of the queue has it; what
the other half of the demo does for real. The forecast is held against that half.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.app.models import Customer
from sqlalchemy_fairqueue.demo.errors import DemoError
from sqlalchemy_fairqueue.simulation.scenarios import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.demo.outcome import Outcome
    from sqlalchemy_fairqueue.reporting.history import RecordedHistory

_TITLE = "Bob and the ten others: how fair it was"
_MOST_OF_IT = 0.9


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a replay for the other half.

    Attributes:
        attempts: The attempts of the history.
        waits: How long each file of a small customer waits for its result, first come, first served, in seconds.
        error: How far a replay of the record itself is from the record, as a part of the times in it.
    """

    attempts: int
    waits: tuple[float, ...]
    error: float

    def relative(self, fair: Outcome) -> float:
        """The median wait in relation to the time in which nine tenths of the files were done in the fair half."""
        return median(self.waits) / _time_of_most(fair)


def relative_wait(fifo: Outcome, bob: str) -> float:
    """The same of the real half, in relation to the time in which nine tenths of its own files were done."""
    return median([one.wait for one in fifo.served if one.customer != bob]) / _time_of_most(fifo)


def check_report() -> None:
    """Raise what would be raised when it is too late to be of use.

    Raises:
        DemoError: What a report needs is not installed.
    """
    try:
        import jinja2  # noqa: F401 - only a report needs these
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        problem = f"a report cannot be made: {error}; pip install 'sqlalchemy-fairqueue[demo,report]'"
        raise DemoError(problem) from error


def make_report(engine: Engine, page: Path, step: Callable[[str, int, int], None]) -> Forecast:
    """Make a report of the history of a database, and a forecast of the same files first come, first served.

    Args:
        engine: The database.
        page: Where the report is written.
        step: Called before each step with its name, its number from 0 and the number of all steps.
    """
    from sqlalchemy_fairqueue.reporting import read_history, report

    step("reading the history", 0, 6)
    history = read_history(engine)
    with Session(engine) as session:
        labels = {
            f"customer-{customer}": name for customer, name in session.execute(select(Customer.id, Customer.name))
        }
    fifo = Scenario(name="first come, first served", discipline="fifo")
    made = report(
        history, scenarios=[fifo], output=page, title=_TITLE, labels=labels,
        progress=lambda name, number, count: step(name, number + 1, count + 1),
    )  # fmt: skip
    (again,) = made.replays[0].replayed
    return forecast_of(history, error=again.replay_error or 0.0)


def forecast_of(history: RecordedHistory, *, error: float, workers: float | None = None) -> Forecast:
    """The forecast of the same files first come, first served.

    Args:
        history: The history of the fair half.
        error: How far a replay of the record itself is from the record.
        workers: Files handled at once. None: as many as the history shows.
    """
    from sqlalchemy_fairqueue.simulation.replay import measured_replay

    scenario = Scenario(name="first come, first served", discipline="fifo", workers=workers)
    rows = measured_replay(history.attempts, scenario).to_pylist()
    bob = min(rows, key=lambda row: row["enqueued_at"])["channel"]
    waits = [
        (row["finished_at"] - row["enqueued_at"]).total_seconds()
        for row in rows
        if row["channel"] != bob and row["outcome"] == "completed"
    ]
    return Forecast(len(rows), tuple(waits), error)


def _time_of_most(outcome: Outcome) -> float:
    """The time in which nine tenths of the files were done; the files of a killed worker wait for its lease."""
    ends: Sequence[float] = sorted(one.parsed for one in outcome.served)
    return ends[int(len(ends) * _MOST_OF_IT)]
