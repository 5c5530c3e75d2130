"""Limits of queues on the dashboard: what is out of them, changed after a question; a whole queue paused."""

from typing import Any

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
    assert "Change the shared limit 'openai'?" in question.text
    assert "Now Then max_concurrency 3 4 rate no rate 10/s" in question.text
    assert "The limit was changed." in user.submit(question.form("Change the limit")).text
    [limit] = QUEUE.limits.list(engine, "openai")
    assert (limit.max_concurrency, limit.rate) == (4, Rate(10))
    user.submit(user.submit(own, max_concurrency="").form("Change the limit"))
    assert QUEUE.stats(engine).max_concurrency is None
    assert user.submit(own, rate="fast").status == 400
    assert "The limit was changed." not in user.submit(user.get("limits").forms[0]).text
    assert [one.what for one in QUEUE.admin.audits(engine)] == ["limit", "limit"]


def test_changes_of_others_stay(browse: Browse, engine: Engine) -> None:
    """What somebody else changed between the question and the answer stays; the answer makes the change in question."""
    QUEUE.limits.configure(engine, "openai", max_concurrency=3)
    QUEUE.configure(engine, max_concurrency=5)
    QUEUE.plans.configure(engine, "gold", max_concurrency=7)
    enqueue(engine, "a")
    user = browse("operator")
    shared, own = user.get("limits").forms
    plan = user.get("plan", queue="documents", plan="gold").form("Preview the change…")
    tenant = user.get("tenant", queue="documents", channel="a").form("Preview the change…")
    answers = [user.submit(form, rate="10/s").forms[-1] for form in (shared, own, plan, tenant)]
    QUEUE.limits.configure(engine, "openai", max_concurrency=30)
    QUEUE.configure(engine, max_concurrency=50)
    QUEUE.plans.configure(engine, "gold", max_concurrency=70)
    QUEUE.configure_channel(engine, "a", max_concurrency=90)
    for answer in answers:
        assert "changed." in user.submit(answer).text
    [limit], stats, [gold] = QUEUE.limits.list(engine, "openai"), QUEUE.stats(engine), QUEUE.plans.list(engine)
    [channel] = QUEUE.channels(engine, "a")
    changed: list[Any] = [limit, stats, gold.policy, channel.policy]
    assert [(one.max_concurrency, one.rate) for one in changed] == [(most, Rate(10)) for most in (30, 50, 70, 90)]


def test_a_queue_is_paused(browse: Browse, engine: Engine) -> None:
    """The page of a queue pauses and resumes all of it."""
    enqueue(engine, "a")
    user = browse("operator")
    page = user.submit(user.get("tenants", queue="documents").form("Pause the queue"))
    assert QUEUE.stats(engine).paused_at is not None
    assert "queue paused" in page.text
    user.submit(page.form("Resume the queue"))
    assert QUEUE.stats(engine).paused_at is None
