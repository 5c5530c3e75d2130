"""Limits of queues on the dashboard: what is out of them, changed after a question; a whole queue paused."""

from sqlalchemy import Engine

from sqlalchemy_fairqueue import Rate
from tests.cli.messages import QUEUE, enqueue, lease
from tests.dashboard.conftest import Browse


def test_limits(browse: Browse, engine: Engine) -> None:
    """A limit stands with what is out of it; an operator changes that of a queue and a shared one, and is recorded."""
    QUEUE.limits.configure(engine, "openai", max_concurrency=3)
    QUEUE.configure(engine, limits=["openai"], max_concurrency=5)
    enqueue(engine, "a", "a")
    lease(engine, 2)
    page = browse("viewer").get("limits")
    assert "openai shared Out 2 of 3" in page.text
    assert "documents Out 2 of 5" in page.text
    assert page.forms == []

    user = browse("operator")
    shared, own = user.get("limits").forms
    question = user.submit(shared, max_concurrency="4", rate="10/s")
    assert "'openai' to max concurrency 4, max cost out no limit, rate 10/s?" in question.text
    assert "The limit was changed." in user.submit(question.form("Change the limit")).text
    [limit] = QUEUE.limits.list(engine, "openai")
    assert (limit.max_concurrency, limit.rate) == (4, Rate(10))
    user.submit(user.submit(own, max_concurrency="").form("Change the limit"))
    assert QUEUE.stats(engine).max_concurrency is None
    assert user.submit(own, rate="fast").status == 400
    assert [one.what for one in QUEUE.admin.audits(engine)] == ["limit", "limit"]


def test_a_queue_is_paused(browse: Browse, engine: Engine) -> None:
    """The page of a queue pauses and resumes all of it."""
    enqueue(engine, "a")
    user = browse("operator")
    page = user.submit(user.get("tenants", queue="documents").form("Pause the queue"))
    assert QUEUE.stats(engine).paused_at is not None
    assert "queue paused" in page.text
    user.submit(page.form("Resume the queue"))
    assert QUEUE.stats(engine).paused_at is None
