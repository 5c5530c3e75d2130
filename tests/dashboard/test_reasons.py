"""Each reason of a wait stands on the pages of tenants, with those who take what the tenant waits for."""

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue.values.reports import Reason
from tests.dashboard.conftest import Browse
from tests.figures.test_reasons import prepare

_CULPRITS = {
    Reason.QUEUE_LIMIT: ["taken by b"],
    Reason.QUEUE_RATE: ["taken by b"],
    Reason.SHARED_LIMIT: ["api", "summaries"],
    Reason.SHARED_RATE: ["api"],
    Reason.TURN: ["taken by b"],
    Reason.ORDERING_KEY: ["behind message 1 "],
}
"""Who is named on the page of all tenants, where it is somebody else."""


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_stands_with_its_culprit(browse: Browse, engine: Engine, reason: Reason) -> None:
    """The pages of all tenants, of those with the reason, and of the tenant name the reason and whose fault it is."""
    prepare(engine, reason)
    viewer = browse("viewer")
    for page in (viewer.get("tenants", queue="documents"), viewer.get("tenants", queue="documents", reason=reason)):
        row = page.row("a").text
        assert f" {reason} " in f"{row} "
        assert [word for word in _CULPRITS.get(reason, []) if word not in row] == []
        assert ("taken by" in row) == ("taken by b" in row)
    alone = viewer.get("tenant", queue="documents", channel="a").text
    assert str(reason) in alone
    assert [word for word in _CULPRITS.get(reason, []) if word not in alone] == []
