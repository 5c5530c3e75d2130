"""Messages in quarantine stand on the page of dead letters: why, what can be read, and what to do with them."""

import logging

import pytest
from sqlalchemy import Engine

from tests.cli.messages import QUEUE, enqueue
from tests.dashboard.conftest import Browse
from tests.dashboard.scenario import set_aside

_AUDIT = "sqlalchemy_fairqueue.dashboard.audit"


def test_what_is_shown(browse: Browse, engine: Engine) -> None:
    """Who sees payloads sees the whole reason; a viewer sees what sort of reason it is, and can do nothing."""
    enqueue(engine, "customer-7")
    assert "Quarantine" not in browse("viewer").get("dead").text
    set_aside(engine, "customer-7", 900, lost=True, words="4711")
    page = browse("viewer").get("dead")
    assert "Quarantine" in page.text
    assert "#900" in page.text
    assert page.links["customer-7"] == "tenant?queue=documents&channel=customer-7"
    assert "it could not be read" in page.text
    assert "it could not be read: 4711" not in page.text
    assert page.forms == []
    assert "it could not be read: 4711" in browse("reader").get("dead", queue="documents").text


def test_put_back_and_delete(browse: Browse, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """An operator puts back what can be read, is told what cannot be, and deletes after a question."""
    caplog.set_level(logging.INFO, _AUDIT)
    enqueue(engine, "customer-7")
    set_aside(engine, "customer-7", 900)
    user = browse("operator")
    first = user.get("dead").form("Put back")
    assert "Put back: it is due now" in user.submit(first).text
    assert 900 in {one.message_id for one in QUEUE.messages(engine)}
    assert "It is not in quarantine any more." in user.submit(first).text
    set_aside(engine, "customer-7", 901, lost=True)
    page = user.submit(user.get("dead").form("Put back"))
    assert "Its content is lost" in page.text
    asked = user.submit(page.form("Delete…"))
    assert "Delete message 901 from the quarantine for good?" in asked.text
    assert [one.message_id for one in QUEUE.quarantined(engine)] == [901]
    assert "Deleted from the quarantine: 1." in user.submit(asked.form("Delete it")).text
    assert QUEUE.quarantined(engine) == []
    assert [record.message for record in caplog.records if record.name == _AUDIT] == [
        "'otto' did release on queue 'documents' message_id=900: released",
        "'otto' did release on queue 'documents' message_id=900: missing",
        "'otto' did release on queue 'documents' message_id=901: unreadable",
        "'otto' did purge_quarantined on queue 'documents' message_id=901: deleted",
    ]


@pytest.mark.parametrize("button", ["Put back", "Delete…"])
def test_a_viewer_does_neither(browse: Browse, engine: Engine, button: str) -> None:
    """The forms of an operator are refused when a viewer sends them."""
    enqueue(engine, "customer-7")
    set_aside(engine, "customer-7", 900)
    form = browse("operator").get("dead").form(button)
    form.fields["confirmed"] = "yes"
    assert browse("viewer").submit(form).status == 403
    assert [one.message_id for one in QUEUE.quarantined(engine)] == [900]
