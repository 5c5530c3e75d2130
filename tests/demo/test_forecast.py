"""The forecast of the demo's second half from the history of its first."""

from statistics import median
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import URL, Engine, text

from sqlalchemy_fairqueue.demo.database import migrated_database
from sqlalchemy_fairqueue.demo.outcome import Outcome, measure
from sqlalchemy_fairqueue.demo.run import perform
from sqlalchemy_fairqueue.demo.scenario import BOB, make_scenario
from sqlalchemy_fairqueue.demo.services import FAIR, FIFO

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlalchemy_fairqueue.demo.run import Standings
    from sqlalchemy_fairqueue.demo.takeover import Takeover

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_TOLERANCE = 2.0
_HISTORY = text(
    "select id, queue, channel_id, channel, message_id, kind, attempt, enqueued_at, ready_at, started_at, finished_at, "
    "outcome from fq_history"
)


class _Nobody:
    """An audience that does not listen."""

    def tell(self, stage: str) -> None:
        """Hear what is going on."""

    def show(self, service: str, standings: "Standings") -> None:
        """Hear where the customers stand."""

    def show_takeover(self, service: str, takeover: "Takeover") -> None:
        """Hear what became of a killed worker's files."""


def _relative_wait(waits: list[float], ends: list[float]) -> float:
    """The median of waits as a part of the time in which nine tenths of all files were done."""
    return median(waits) / sorted(ends)[len(ends) * 9 // 10]


def _history(engine: Engine) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - comes with the extra spark

    with engine.connect() as connection:
        return pa.Table.from_pylist([dict(row._mapping) for row in connection.execute(_HISTORY)])


def test_the_forecast_of_fifo_is_what_fifo_does(server_url: URL) -> None:
    """From the history of the fair half the replay tells how long small customers wait in the real FIFO half.

    The statistic is the median wait of the ten others' files in relation to the time in which nine tenths of all files
    of the same half were done; for the forecast, of the fair half as it was recorded. A wait in FIFO is the time for
    the rest of Bob's files, so that the part depends on how much of his work is done when the others come, which both
    halves have in common, and not on the machine's speed. Nine tenths, so that the few files of the killed worker,
    which wait for its lease, do not count; a median for the same reason.

    The tolerance is a factor of two. The machine may be up to two and a half times as fast before the others come as
    afterwards, in one half, and the reverse in the other, and the parts stay within it. Workers by the most messages
    that were out at once, about three times as many as there were, forecast a fifth of the wait or less.
    """
    from sqlalchemy_fairqueue.simulation.replay import measured_replay  # noqa: PLC0415 - needs the extra spark
    from sqlalchemy_fairqueue.simulation.scenarios import Scenario  # noqa: PLC0415

    scenario = make_scenario(seed=1, limit=300)
    outcomes: dict[str, Outcome] = {}
    for service in (FAIR, FIFO):
        with migrated_database(server_url) as engine:
            takeover = perform(service, engine, scenario, 2, _Nobody())
            outcomes[service] = measure(service, engine, scenario, takeover)
            if service == FAIR:
                history = _history(engine)

    real = [one for one in outcomes[FIFO].served if one.customer != BOB]
    happened = _relative_wait([one.wait for one in real], [one.parsed for one in outcomes[FIFO].served])

    def forecast(workers: float | None = None) -> float:
        rows = measured_replay(history, Scenario(name="x", discipline="fifo", workers=workers)).to_pylist()
        bob = min(rows, key=lambda row: row["enqueued_at"])["channel"]
        waits = [
            (row["finished_at"] - row["enqueued_at"]).total_seconds()
            for row in rows
            if row["channel"] != bob and row["outcome"] == "completed"
        ]
        return _relative_wait(waits, [one.parsed for one in outcomes[FAIR].served])

    assert happened / _TOLERANCE < forecast() < happened * _TOLERANCE
    # The statistic tells a wrong number of workers from the right one.
    assert forecast(workers=3 * 4) < happened / _TOLERANCE
