"""The fairness report of the demo: made in this process from the history of the fair queue.

The report has a replay beside it: the same files, first come, first served, as a simulator of the queue has it; what
the other half of the demo does for real. The forecast is held against that half.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.app.models import Customer
from sqlalchemy_fairqueue.demo.errors import DemoError
from sqlalchemy_fairqueue.demo.outcome import Served
from sqlalchemy_fairqueue.simulation.scenarios import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.reporting.history import RecordedHistory

_TITLE = "Bob and the ten others: how fair it was"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a replay for the other half.

    Attributes:
        attempts: The attempts of the history.
        served: All files, by channel instead of customer, as they would be served first come, first served.
        bob: The channel of Bob.
        error: How far a replay of the record itself is from the record, as a part of the times in it.
    """

    attempts: int
    served: tuple[Served, ...]
    bob: str
    error: float

    @property
    def files_ahead(self) -> float:
        """How many files are done between the upload of a small customer's file and its result, on average."""
        return files_ahead(self.served, self.bob)


def files_ahead(served: Sequence[Served], bob: str) -> float:
    """How many files were done between the upload of a small customer's file and its result, on average.

    It is a wait measured in work: it does not change with the machine's speed, which is never the same for two runs.

    Args:
        served: All files of a run.
        bob: Whose files do not count.
    """
    ends = sorted(one.parsed for one in served)
    return mean(
        bisect_left(ends, one.parsed) - bisect_right(ends, one.uploaded) for one in served if one.customer != bob
    )


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
    first = min(rows, key=lambda row: row["enqueued_at"])
    served = tuple(
        Served(
            row["channel"], *((row[at] - first["enqueued_at"]).total_seconds() for at in ("enqueued_at", "finished_at"))
        )
        for row in rows
        if row["outcome"] == "completed"
    )
    return Forecast(len(rows), served, first["channel"], error)
