"""The forecast of the demo's second half from the history of its first."""

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import URL

from sqlalchemy_fairqueue.demo.database import migrated_database
from sqlalchemy_fairqueue.demo.outcome import Outcome, measure
from sqlalchemy_fairqueue.demo.report import forecast_of, relative_wait
from sqlalchemy_fairqueue.demo.run import perform
from sqlalchemy_fairqueue.demo.scenario import BOB, make_scenario
from sqlalchemy_fairqueue.demo.services import FAIR, FIFO
from sqlalchemy_fairqueue.reporting import RecordedHistory, read_history

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.demo.run import Standings
    from sqlalchemy_fairqueue.demo.takeover import Takeover

pytestmark = pytest.mark.timeout(600)

_TOLERANCE = 2.0


class _Nobody:
    """An audience that does not listen."""

    def tell(self, stage: str) -> None:
        """Hear what is going on."""

    def show(self, service: str, standings: "Standings") -> None:
        """Hear where the customers stand."""

    def show_takeover(self, service: str, takeover: "Takeover") -> None:
        """Hear what became of a killed worker's files."""


def test_the_forecast_of_fifo_is_what_fifo_does(server_url: URL) -> None:
    """From the history of the fair half the replay tells how long small customers wait in the real FIFO half.

    The statistic is the median wait of the ten others' files in relation to the time in which nine tenths of all files
    of the same half were done; for the forecast, of the fair half as it was recorded. A wait in FIFO is the time for
    the rest of Bob's files, so that the part depends on how much of his work is done when the others come, which both
    halves have in common, and not on the machine's speed. Nine tenths, so that the few files of the killed worker,
    which wait for its lease, do not count; a median for the same reason.

    The tolerance is a factor of two. In ten runs on a busy machine (load 10 to 15 on two cores), five forecasts were
    within 15 % of the real half, and all within 26 %, since each half has its own noise. The machine may be up to two
    and a half times as fast before the others come as afterwards, in one half, and the reverse in the other, and the
    parts stay within it. Workers by the most messages that were out at once, about three times as many as there were,
    forecast a fifth of the wait or less.
    """
    scenario = make_scenario(seed=1, limit=300)
    outcomes: dict[str, Outcome] = {}
    history: RecordedHistory | None = None
    for service in (FAIR, FIFO):
        with migrated_database(server_url) as engine:
            takeover = perform(service, engine, scenario, 2, _Nobody())
            outcomes[service] = measure(service, engine, scenario, takeover)
            if service == FAIR:
                history = read_history(engine)

    assert history is not None
    happened = relative_wait(outcomes[FIFO], BOB)
    forecast = forecast_of(history, error=0.0).relative(outcomes[FAIR])
    wrong = forecast_of(history, error=0.0, workers=3 * 4).relative(outcomes[FAIR])

    assert happened / _TOLERANCE < forecast < happened * _TOLERANCE
    # The statistic tells a wrong number of workers from the right one.
    assert wrong < happened / _TOLERANCE
