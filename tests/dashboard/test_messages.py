"""The page of a message: its attempts, the waits between, why it waits, its trace, its move elsewhere, its result."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import InvalidArgument
from sqlalchemy_fairqueue.dashboard import create_dashboard
from tests.cli.messages import ODD_NAMES, QUEUE, enqueue, lease
from tests.dashboard.conftest import Audit, Browse, Page, authorize, visited
from tests.fixtures.database import Database

_TRACEPARENT = f"00-{'1' * 32}-{'2' * 16}-01"


def test_attempts(browse: Browse, engine: Engine) -> None:
    """Each attempt stands with its worker, time, outcome and error, and the waits between; of a dead letter the last
    one, too.
    """
    QUEUE.configure(engine, history=True)
    [message_id] = enqueue(engine, "customer-7", max_attempts=9)
    [delivery] = lease(engine, 1)
    QUEUE.retry(engine, delivery, delay=timedelta(0), error="Traceback\nTimeoutError: host 1")
    [delivery] = lease(engine, 1)
    QUEUE.release(engine, delivery)
    [delivery] = lease(engine, 1)
    QUEUE.retry(engine, delivery, delay=timedelta(hours=2), error="Traceback\nKeyError: 'x'")
    page = browse("reader").get("message", queue="documents", id=message_id)
    steps = page.text.partition("What happened")[2].partition("Payload")[0]
    words = ["enqueued", "attempt 1 by", "put back to be tried again", "host 1", "put back undone"]
    words += ["attempt 2 by", "KeyError: 'x'", "due, in"]
    found = [steps.find(word) for word in words]
    assert -1 not in found, (words, steps)
    assert "waited" in steps
    assert "for its turn" in steps
    hidden = browse("viewer").get("message", queue="documents", id=message_id).text
    assert "attempt 1 by" in hidden
    assert "host 1" not in hidden
    QUEUE.admin.retry_now(engine, message_id)
    QUEUE.bury(engine, lease(engine, 1), reason="cannot be read", error="ValueError: no such page")
    page = browse("viewer").get("message", queue="documents", id=message_id)
    assert "was given up" in page.text
    assert "died after 3 attempts: cannot be read" in page.text


def test_without_a_history(browse: Browse, engine: Engine) -> None:
    """Of a queue that records no history, the page says so, and shows what the message itself knows. One that waits for
    another shows its ordering key; the tenant's page shows its state.
    """
    first, second = enqueue(engine, "customer-7", "customer-7", ordering_key="session-42")
    lease(engine, 1)
    page = browse("viewer").get("message", queue="documents", id=first).text
    assert ("Its queue does not record its history" in page, "held by" in page) == (True, True)
    page = browse("viewer").get("message", queue="documents", id=second).text
    assert ("session-42" in page, "State held" in page) == (True, True)
    assert "held" in browse("viewer").get("tenant", queue="documents", channel="customer-7").text


def test_a_kind_that_no_worker_knows(browse: Browse, engine: Engine) -> None:
    """A message that workers give back again and again says so, with its kind; one that failed does not."""
    [message_id] = enqueue(engine, "customer-7", kind="print")
    for _ in range(3):
        assert "given back" not in browse("viewer").get("message", queue="documents", id=message_id).text
        QUEUE.admin.retry_now(engine, message_id)
        QUEUE.release(engine, lease(engine, 1), delay=timedelta(hours=1))
    page = browse("viewer").get("message", queue="documents", id=message_id).text
    assert "given back 3 times, uncounted, as by workers that have no handler for kind 'print'" in page


def test_a_tenant_beyond_the_list(browse: Browse, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant that the figures do not list has its reason all the same."""
    monkeypatch.setattr("sqlalchemy_fairqueue.figures.queues.SHOWN", 1)
    enqueue(engine, "first")
    enqueue(engine, "late")
    assert "late" not in browse("viewer").get("tenants", queue="documents").links
    page = browse("viewer").get("tenant", queue="documents", channel="late")
    assert "no consumer has a lease" in page.text


def test_traces(engine: Engine) -> None:
    """A message that was traced links to its trace, where the application says where that is."""
    [traced] = enqueue(engine, "a", headers={"traceparent": _TRACEPARENT})
    [hostile] = enqueue(engine, "a", headers={"traceparent": '00-"><script>'})
    app = create_dashboard(engine, authorize=authorize, trace_url="https://tempo.example/{trace_id}?span={span_id}")
    with visited(app) as client:
        found = client.get(f"/message?queue=documents&id={traced}", headers={"x-user": "viewer"}).text
        other = client.get(f"/message?queue=documents&id={hostile}", headers={"x-user": "viewer"}).text
    assert f'href="https://tempo.example/{"1" * 32}?span={"2" * 16}"' in found
    assert "tempo" not in other
    for address in ("javascript:{trace_id}", "https://tempo.example/"):
        with pytest.raises(InvalidArgument, match="trace_url"):
            create_dashboard(engine, trace_url=address)


def test_move(browse: Browse, engine: Engine, audit: Audit) -> None:
    """An operator gives a message to another tenant, after a question that says whether it is new. A name that cannot
    be one is refused, and a message that a consumer holds stays.
    """
    [message_id], name = enqueue(engine, "customer-7"), ODD_NAMES[2]
    user = browse("operator")
    form = user.get("message", queue="documents", id=message_id).form("Move…")
    assert user.submit(form, to="x" * 600).status == 400
    asked = user.submit(form, to=name)
    assert "There is no such tenant yet" in asked.text
    assert QUEUE.messages(engine, channel="customer-7")
    assert "Moved." in user.submit(asked.form("Move the message")).text
    assert [one.message_id for one in QUEUE.messages(engine, channel=name)] == [message_id]
    assert "did move on queue 'documents'" in audit()[-1]
    again = user.submit(user.submit(form, to=name).form("Move the message"))
    assert "It is there already." in again.text
    lease(engine, 1)
    assert all(one.button != "Move…" for one in user.get("message", queue="documents", id=message_id).forms)
    held = user.submit(user.submit(form, to="customer-8").form("Move the message"))
    assert "A consumer holds the message: it stays." in held.text


def test_a_cancel_that_is_ignored(browse: Browse, engine: Engine) -> None:
    """A message that is cancelled and still held says so, on its page, among the messages and with its worker."""
    [message_id] = enqueue(engine, "a")
    lease(engine, 1)
    user = browse("operator")
    assert "handler still runs" not in user.get("message", queue="documents", id=message_id).text
    QUEUE.cancel(engine, message_id)
    assert "ago, its handler still runs" in user.get("message", queue="documents", id=message_id).text
    assert "1 cancelled" in user.get("workers").text
    assert "State out" not in user.get("messages", state="leased").text


def test_messages_by_state_and_kind(browse: Browse, engine: Engine, audit: Audit) -> None:
    """An operator lists messages by tenant, state and kind, and cancels, tries or purges what is chosen."""
    QUEUE.configure(engine, history=True)
    [done] = enqueue(engine, "a")
    QUEUE.complete(engine, lease(engine, 1))
    first, second, third = enqueue(engine, "a", "a", "b", kind="mail")
    [later] = enqueue(engine, "a", kind="report", delay=timedelta(hours=1))
    user, viewer = browse("operator"), browse("viewer")

    def listed(page: Page) -> set[int]:
        return {int(text[1:]) for text in page.links if text.startswith("#")}

    assert listed(viewer.get("messages")) == {first, second, third, later}
    assert listed(viewer.get("messages", queue="documents", state="scheduled")) == {later}
    assert listed(viewer.get("messages", queue="documents", channel="b", kind="mail")) == {third}
    assert listed(viewer.get("messages", queue="documents", state="completed")) == {done}
    assert "No such message" in viewer.get("messages", queue="documents", kind="nothing").text

    form = user.get("messages", queue="documents", state="ready").form("Cancel the selected…")
    assert "Cancelled: 0." in user.submit(form).text
    asked = user.submit(form, **{f"id.{first}": "1", f"id.{third}": "1"})
    assert "Cancel 2 messages?" in asked.text
    assert listed(user.submit(asked.form("Cancel them"))) == {second}
    assert f"[{first}, {third}]" in audit()[-1]
    form.action = form.action.replace("action=cancel", "action=retry")
    assert "Due now: 1." in user.submit(form, **{f"id.{later}": "1"}).text

    page = user.get("messages", queue="documents", channel="a", state="ready", kind="report")
    asked = user.submit(page.form("Purge all of these…"))
    assert "Delete 1 undelivered messages of kind 'report' that are ready of 'a' for good?" in asked.text
    assert "Purged 1." in user.submit(asked.form("Delete them")).text
    assert listed(user.get("messages", queue="documents")) == {second}


def test_results(browse: Browse, engine: Engine) -> None:
    """A message that has ended says how and shows its result, to those who may see payloads."""
    QUEUE.configure(engine, history=True, result_retention=timedelta(days=1))
    value = {"pages": ["<b>köln</b>\x1b[31m"]}
    done, nothing, cancelled = enqueue(engine, "a", "a", "a", kind="parse")
    QUEUE.cancel(engine, cancelled)
    for message in lease(engine, 2):
        QUEUE.complete(engine, message, result=value if message.message_id == done else None)
    page = browse("reader").get("message", queue="documents", id=done)
    assert r'"<b>köln</b>\u001b[31m"' in page.text
    assert page.links["a"] == "tenant?queue=documents&channel=a"
    hidden = browse("viewer").get("message", queue="documents", id=done).text
    assert "completed" in hidden
    assert "You may not see results." in hidden
    assert "köln" not in hidden
    assert "null" in browse("reader").get("message", queue="documents", id=nothing).text
    assert "State cancelled" in browse("viewer").get("message", queue="documents", id=cancelled).text


def test_one_that_has_ended(browse: Browse, engine: Engine) -> None:
    """Without a result a message that is done is shown from the history, and so is one that was purged since."""
    QUEUE.configure(engine, history=True)
    [done] = enqueue(engine, "a", kind="parse")
    QUEUE.retry(engine, lease(engine, 1), delay=timedelta(0), error="Traceback\nTimeoutError: host 1")
    QUEUE.complete(engine, lease(engine, 1))
    page = browse("reader").get("message", queue="documents", id=done)
    assert "State completed" in page.text
    assert "UTC, 2 attempts, ran" in page.text
    assert page.links["a"] == "tenant?queue=documents&channel=a"
    steps = page.text.partition("What happened")[2].partition("Result")[0]
    places = [steps.index(word) for word in ("enqueued", "attempt 1", "host 1", "attempt 2", "completed the message")]
    assert places == sorted(places)
    assert "host 1" not in browse("viewer").get("message", queue="documents", id=done).text
    [purged] = enqueue(engine, "a")
    QUEUE.release(engine, lease(engine, 1))
    QUEUE.purge(engine, "a")
    assert "withdrawn or purged since" in browse("viewer").get("message", queue="documents", id=purged).text


def test_results_that_are_not_kept(browse: Browse, engine: Engine, database: Database) -> None:
    """A result whose time is over, or that could not be kept, is said to be; a message without one is not there."""
    [gone] = enqueue(engine, "a")
    QUEUE.complete(engine, lease(engine, 1))
    QUEUE.configure(engine, result_retention=timedelta(days=1))
    ids = enqueue(engine, "a", "b")
    QUEUE.complete(engine, lease(engine, 2), result="secret")
    database.execute(
        "update fq_result set outcome = 'unkept', content = null, problem = 'secret: too large' where message_id = :id",
        id=ids[0],
    )
    database.execute("update fq_result set expires_at = fq_now() where message_id = :id", id=ids[1])
    reader, viewer = browse("reader"), browse("viewer")
    assert "It could not be kept: secret: too large" in reader.get("message", queue="documents", id=ids[0]).text
    assert "It is not kept any more." in reader.get("message", queue="documents", id=ids[1]).text
    for one in ids:
        assert "secret" not in viewer.get("message", queue="documents", id=one).text
    assert reader.get("message", queue="documents", id=gone).status == 404
