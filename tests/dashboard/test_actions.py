"""Operators act, and it leaves a line; viewers and strangers do not, and no other site can."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest
from sqlalchemy import Engine
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from sqlalchemy_fairqueue.dashboard import Access, create_dashboard
from sqlalchemy_fairqueue.dashboard.policies import EDITOR
from tests.cli.messages import QUEUE, bury, enqueue, enqueue_group, lease
from tests.dashboard.conftest import Audit, Browse, Form, visited
from tests.dashboard.test_pages import PAGES
from tests.fixtures.database import Database
from tests.policies import SAMPLES

_TENANT = {"queue": "documents", "channel": "customer-7"}


def test_policy(browse: Browse, engine: Engine, audit: Audit) -> None:
    """A change of a policy is shown with its effect before it is made, and changes only what was changed."""
    QUEUE.configure_channel(engine, "customer-7", max_concurrency=5, max_backlog=100)
    enqueue(engine, "customer-7", "customer-7", "other")
    lease(engine, 3)
    user = browse("operator")
    form = user.get("tenant", **_TENANT).form("Preview the change…")
    asked = user.submit(form, weight="3", rate="10/s", max_concurrency="")
    assert "max_concurrency 5 no limit" in asked.text
    assert "weight 1 3" in asked.text
    assert "goes from 50" in asked.text
    assert QUEUE.channels(engine, "customer-7")[0].weight == 1
    assert "The policy was changed." in user.submit(asked.form("Change the policy")).text
    [stats] = QUEUE.channels(engine, "customer-7")
    assert (stats.weight, stats.rate, stats.max_concurrency, stats.max_backlog) == (3, Rate.parse("10/s"), None, 100)
    assert "weight: 1 -> 3" in audit()[0]
    unchanged = user.submit(user.get("tenant", **_TENANT).form("Preview the change…"))
    assert "The policy was changed." not in unchanged.text


def test_stop_a_worker(browse: Browse, engine: Engine, database: Database, audit: Audit) -> None:
    """A worker is asked to stop after a question, in the name of the operator; one that has gone is said to have."""
    enqueue(engine, "customer-7")
    name, requests = "<b>host:7</b>", "select queue, consumer, requested_by from fq_stop_request"
    [delivery] = lease(engine, 1)
    database.execute("update fq_lease set consumer = :name", name=name)
    user = browse("operator")
    asked = user.submit(user.get("workers").form("Stop…"))
    assert f"Ask worker '{name}' to stop?" in asked.text
    assert "so does every other worker of this name" in asked.text
    assert database.rows(requests) == []
    done = asked.form("Ask it to stop")
    assert "Asked: within seconds it takes no more messages" in user.submit(done).text
    [request] = database.rows(requests)
    assert tuple(request) == ("documents", name, "otto")
    page = browse("viewer").get("workers")
    assert "works asked to stop" in page.text
    assert "ago, by otto" in page.text
    QUEUE.complete(engine, delivery)
    database.execute("delete from fq_lease")
    assert "no worker of that name has a lease" in user.submit(done).text
    done.action = "act?action=stop_worker&queue=documents"
    assert user.submit(done).status == 404
    assert audit() == [
        f"'otto' did stop_worker on queue 'documents' consumer={name!r}: asked",
        f"'otto' did stop_worker on queue 'documents' consumer={name!r}: no lease",
    ]


@pytest.mark.parametrize("fields", [list(SAMPLES)[::2], list(SAMPLES)[1::2]])
def test_every_field_of_a_policy(browse: Browse, engine: Engine, fields: list[str]) -> None:
    """Each field is edited; a page sent as it stands changes nothing; a viewer reads the value."""
    enqueue(engine, "customer-7")
    user = browse("operator")
    editors = [one for one in EDITOR if one.name in fields]
    texts = {one.name: one.text(SAMPLES[one.name]) for one in editors}
    # No field could be taken for another: those whose samples are equal are apart.
    assert len(set(texts.values())) == len(fields)
    asked = user.submit(user.get("tenant", **_TENANT).form("Preview the change…"), **texts)
    user.submit(asked.form("Change the policy"))
    page = user.submit(user.get("tenant", **_TENANT).form("Preview the change…"))
    assert "Change the policy" not in page.text
    [stats] = QUEUE.channels(engine, "customer-7")
    assert stats.policy == ChannelPolicy(**{name: SAMPLES[name] for name in fields})
    assert set(stats.overridden) == set(fields)
    shown = browse("viewer").get("tenant", **_TENANT).text
    assert [one.name for one in editors if f"{one.label} its own {one.shown(SAMPLES[one.name])}" not in shown] == []


def test_bad_values(browse: Browse, engine: Engine) -> None:
    """A value that cannot be kept is named."""
    enqueue(engine, "customer-7")
    user = browse("operator")
    form = user.get("tenant", **_TENANT).form("Preview the change…")
    for field, value in (
        ("weight", ""), ("weight", "0"), ("rate", "fast"), ("max_concurrency", "-1"), ("max_backlog", "x"),
        ("on_full", "wait"), ("priority_aging", "soon"), ("priority_aging", "0s"), ("plan", "plan:gold"),
    ):  # fmt: skip
        page = user.submit(form, **{field: value})
        assert page.status == 400, field
        assert field in page.text


def test_purge_and_cancel(browse: Browse, engine: Engine) -> None:
    """What cannot be undone is asked before: the messages of a tenant, and a message, of which a consumer is told."""
    out, first, _ = enqueue(engine, *["customer-7"] * 3)
    lease(engine, 1)
    user = browse("operator")
    asked = user.submit(user.get("message", queue="documents", id=first).form("Cancel…"))
    assert QUEUE.stats(engine).ready == 2
    assert "Cancelled." in user.submit(asked.form("Cancel the message")).text
    asked = user.submit(user.get("message", queue="documents", id=out).form("Cancel…"))
    assert "A consumer holds the message" in user.submit(asked.form("Cancel the message")).text
    asked = user.submit(user.get("tenant", **_TENANT).form("Purge…"))
    assert "Delete 1 undelivered messages of 'customer-7' for good?" in asked.text
    user.submit(asked.form("Delete them"))
    assert QUEUE.stats(engine).ready == 0


def test_retry_now(browse: Browse, engine: Engine, audit: Audit) -> None:
    """A message that waits for its time is due at once; one that is due, held or gone has no button, or stays."""
    [due] = enqueue(engine, "customer-7")
    [later] = enqueue(engine, "customer-7", delay=timedelta(days=1))
    user = browse("operator")
    assert "Run now" not in user.get("message", queue="documents", id=due).html
    form = user.get("message", queue="documents", id=later).form("Run now")
    assert "It is due now." in user.submit(form).text
    assert (QUEUE.stats(engine).ready, QUEUE.stats(engine).scheduled) == (2, 0)
    assert "Run now" not in user.get("message", queue="documents", id=later).html
    assert "It was due already." in user.submit(form).text
    lease(engine, 2)
    assert "A consumer holds the message already." in user.submit(form).text
    assert [message.rpartition(": ")[2] for message in audit()] == ["due", "unchanged", "leased"]


def test_groups_of_dead_letters(browse: Browse, engine: Engine) -> None:
    """A group is redriven or purged, and no other one; a single letter is redriven from its page."""
    bury(engine, "a", "b", kind="parse")
    [single] = bury(engine, "a", kind="print")
    bury(engine, "a", kind="render")
    user = browse("operator")
    page = user.submit(user.get("message", queue="documents", id=single).form("Redrive"))
    assert "Redriven: 1." in page.text
    assert "waits for its turn" in page.text
    forms = [form for form in user.get("dead").forms if form.button == "Redrive"]
    [parse] = [form for form in forms if "kind=parse" in form.action]
    assert "Redriven: 2." in user.submit(parse).text
    assert [letter.kind for letter in QUEUE.dead_letters.list(engine)] == ["render"]
    asked = user.submit(user.get("dead").form("Purge…"))
    assert "Delete 1 dead letters" in asked.text
    assert "Purged for good: 1." in user.submit(asked.form("Delete them")).text
    assert QUEUE.dead_letters.list(engine) == []


def test_schedules(browse: Browse, engine: Engine) -> None:
    """A schedule is shown, run at once, paused and resumed."""
    QUEUE.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *", timezone="Europe/Berlin", kind="a")
    enqueue(engine, "customer-8")
    user = browse("operator")
    page = user.get("schedules")
    assert "nightly" in page.text
    assert "0 3 * * * Europe/Berlin active" in page.text
    assert "Enqueued as message #" in user.submit(page.form("Run now")).text
    assert QUEUE.channels(engine, "customer-7")[0].ready == 1
    paused = user.submit(page.form("Pause"))
    assert "The schedule is paused." in paused.text
    assert QUEUE.schedules.list(engine)[0].state == "paused"
    assert "The schedule goes on." in user.submit(paused.form("Resume")).text
    assert QUEUE.schedules.list(engine)[0].state == "active"
    gone = page.form("Run now")
    QUEUE.schedules.remove(engine, "nightly", channel="customer-7")
    assert user.submit(gone).status == 404


def test_viewers_and_strangers(browse: Browse, engine: Engine) -> None:
    """A viewer sees no button, and what an operator could send is refused; a stranger sees nothing."""
    QUEUE.plans.configure(engine, "gold", weight=5)
    QUEUE.schedules.set(engine, "nightly", channel="customer-7", every=timedelta(hours=1), kind="report")
    bury(engine, "customer-7")
    enqueue(engine, "customer-8")
    lease(engine, 1)
    [message] = enqueue(engine, "customer-7")
    group = enqueue_group(engine, "customer-9")
    pages = [f"message?queue=documents&id={message}", f"group?queue=documents&group={group}"]
    pages += [f"tenant?{urlencode(_TENANT)}", "plan?queue=documents&plan=gold"]
    for page in (*PAGES, *pages, "live"):
        found = browse("stranger").get(page)
        assert (found.status, "customer-" in found.text) == (403, False), page
    actions = set()
    for page in ("limits", "dead", "schedules", "workers", "messages", "tenants?queue=documents", *pages):
        assert {form.method for form in browse("viewer").get(page).forms} <= {"get"}, page
        for form in (form for form in browse("operator").get(page).forms if form.method == "post"):
            actions.add(form.action.partition("action=")[2].partition("&")[0])
            for user in ("viewer", "stranger"):
                assert browse(user).submit(form, confirmed="yes").status == 403, (user, form.action)
    assert len(actions) > 12, actions
    assert QUEUE.admin.audits(engine) == []


def test_forms_that_are_not_of_the_page(browse: Browse, engine: Engine) -> None:
    """A form that another site sends with the browser's cookies is refused, and so is one without the token of this
    browser, one from before the cookie, and one that is larger than any of ours.
    """
    enqueue(engine, "customer-7")
    user = browse("operator")
    form = user.get("tenant", **_TENANT).form("Pause")
    for name, value in (
        ("origin", "https://evil.example"), ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"),
    ):  # fmt: skip
        answer = user.client.post(f"/{form.action}", data=form.fields, headers={"x-user": "operator", name: value})
        assert answer.status_code == 403
    assert user.submit(Form(form.action, "post")).status == 403
    assert user.submit(form, csrf="0" * 64).status == 403
    assert user.submit(form, more="x" * 100_000).status == 413
    user.client.cookies.clear()
    assert user.submit(form).status == 403
    assert user.client.get("/act", headers={"x-user": "operator"}).status_code == 405
    assert QUEUE.channels(engine, "customer-7")[0].paused_at is None


def test_without_a_callback_nothing_changes(engine: Engine) -> None:
    """A dashboard without a callback is read-only, and shows no payloads."""
    [message_id] = enqueue(engine, "customer-7", payload="secret-4711")
    with visited(create_dashboard(engine)) as client:
        page = client.get(f"/message?queue=documents&id={message_id}")
        token = client.cookies["fairqueue_csrf"]
        answer = client.post("/act?action=pause&queue=documents", data={"csrf": token})
    assert page.status_code == 200
    assert "secret-4711" not in page.text
    assert answer.status_code == 403


def test_an_async_callback_and_a_login(engine: Engine) -> None:
    """The callback may be async, and may answer with a redirect to a login."""

    async def login(request: Request) -> Access | Response:
        return Access("a") if "in" in request.cookies else RedirectResponse("/login", 303)

    with visited(create_dashboard(engine, authorize=login), follow=False) as client:
        assert client.get("/").headers["location"] == "/login"
        client.cookies.set("in", "1")
        assert client.get("/").status_code == 200


def test_what_operators_did(browse: Browse, engine: Engine, audit: Audit) -> None:
    """What an operator does is a line in the log, recorded under their name, and shown to viewers on the page of its
    subject.
    """
    first, second = enqueue(engine, "a", "b", delay=timedelta(hours=1))
    user, viewer = browse("operator"), browse("viewer")
    assert "Nobody has done anything." in viewer.get("audit").text
    page = user.submit(user.get("tenant", queue="documents", channel="a").form("Pause"))
    assert "Paused." in page.text
    assert QUEUE.channels(engine, "a")[0].paused_at is not None
    user.submit(page.form("Resume"))
    assert QUEUE.channels(engine, "a")[0].paused_at is None
    done = "'otto' did {0} on queue 'documents' channel='a': {0}d"
    assert audit() == [done.format("pause"), done.format("resume")]
    user.submit(user.get("message", queue="documents", id=first).form("Run now"))
    form = user.get("messages", queue="documents").form("Cancel the selected…")
    user.submit(user.submit(form, **{f"id.{second}": "1"}).form("Cancel them"))
    found = [(one.who, one.what, one.channel, one.message_id) for one in QUEUE.admin.audits(engine)]
    assert found[:2] == [("otto", "cancel", None, second), ("otto", "retry", None, first)]
    assert found[2:] == [("otto", "resume", "a", None), ("otto", "pause", "a", None)]
    assert "otto cancel" in viewer.get("audit", queue="documents").text
    assert "otto retry" in viewer.get("message", queue="documents", id=first).text
    assert "otto pause" in viewer.get("tenant", queue="documents", channel="a").text
    assert "Done by operators" not in viewer.get("tenant", queue="documents", channel="b").text
