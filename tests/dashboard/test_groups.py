"""Groups on the dashboard: how far each is, its members by state, and its cancellation."""

from datetime import timedelta

from sqlalchemy import Engine

from tests.cli.messages import QUEUE, enqueue_group, lease
from tests.dashboard.conftest import Audit, Browse
from tests.fixtures.database import Database
from tests.groups.conftest import fold


def _facts(text: str) -> str:
    return text[text.index("Members ") :].partition(" Members that")[0]


def test_groups(browse: Browse, engine: Engine, database: Database) -> None:
    """A group stands with its progress; its page has its members by their states, and what followed it."""
    group = enqueue_group(engine, "a", "b", "c", "d", then="reports")
    QUEUE.retry(engine, lease(engine, 1), delay=timedelta(hours=1))
    [first, second] = lease(engine, 2)
    QUEUE.complete(engine, first)
    page = browse("viewer").get("group", queue="documents", group=group)
    assert _facts(page.text) == "Members 4 Ready 1 Scheduled 1 Out 1 Done 1 Failed 0 Cancelled 0"
    assert f"#{second.message_id}" in page.links
    fold(database)
    listed = browse("viewer").get("groups", queue="documents", state="open")
    assert "1 of 4 open 3 1 0 0" in listed.text
    assert listed.links[next(text for text in listed.links if text.startswith(group[:8]))].endswith(group)
    assert "There is no such group." in browse("viewer").get("groups", state="finished").text
    QUEUE.bury(engine, second, reason="cannot be read")
    for message in QUEUE.messages(engine):
        QUEUE.cancel(engine, message.message_id)
    fold(database)
    page = browse("viewer").get("group", queue="documents", group=group)
    assert _facts(page.text) == "Members 4 Ready 0 Scheduled 0 Out 0 Done 1 Failed 1 Cancelled 2"
    assert "finished, with failures" in page.text
    [followup] = QUEUE.messages(engine, channel="reports")
    assert page.links[f"#{followup.message_id}"] == f"message?queue=documents&id={followup.message_id}"


def test_cancel(browse: Browse, engine: Engine, audit: Audit) -> None:
    """An operator cancels what has not ended, after a question. An id of no group is not found, by page and action."""
    group = enqueue_group(engine, "a", "b", "c")
    lease(engine, 1)
    user = browse("operator")
    form = user.get("group", queue="documents", group=group).form("Cancel…")
    asked = user.submit(form)
    assert "Cancel the 3 members" in asked.text
    assert QUEUE.groups.status(engine, group).cancelled == 0
    assert "Cancelled: 2." in user.submit(asked.form("Cancel them")).text
    assert (QUEUE.groups.status(engine, group).cancelled, QUEUE.groups.status(engine, group).pending) == (2, 1)
    assert f"did cancel_group on queue 'documents' group='{group}': cancelled 2, 1 out" in audit()[-1]
    for group in ("", "x", "00000000-0000-4000-8000-000000000000", "'; drop table fq_group; --"):
        assert user.get("group", queue="documents", group=group).status == 404
        form.action = f"act?action=cancel_group&queue=documents&group={group}"
        assert user.submit(form).status in {400, 404}
