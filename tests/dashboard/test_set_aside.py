"""A channel that is set aside: its page says why, and resumes it."""

from sqlalchemy import Engine

from tests.cli.messages import QUEUE, enqueue
from tests.dashboard.conftest import Browse
from tests.dashboard.scenario import set_aside


def test_what_is_shown(browse: Browse, engine: Engine) -> None:
    """Who sees payloads sees the whole reason; a viewer sees what sort of reason it is. Resumed, it says no more."""
    enqueue(engine, "customer-7")
    where = {"queue": "documents", "channel": "customer-7"}
    assert "set aside" not in browse("viewer").get("tenant", **where).text
    set_aside(engine, "customer-7", words="4711")
    page = browse("viewer").get("tenant", **where)
    assert "set aside, for it cannot be delivered" in page.text
    assert "4711" not in page.text
    assert "4711" in browse("reader").get("tenant", **where).text
    user = browse("operator")
    user.submit(user.get("tenant", **where).form("Resume"))
    assert "set aside" not in user.get("tenant", **where).text
    assert QUEUE.channels(engine)[0].problem is None
