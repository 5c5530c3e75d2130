"""Each page shows what it promises, to those who may see it."""

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.dashboard import create_dashboard
from sqlalchemy_fairqueue.dashboard.reading import Health
from sqlalchemy_fairqueue.dashboard.rendering import payload_text
from sqlalchemy_fairqueue.dashboard.words import headline, queue_state
from sqlalchemy_fairqueue.doctor.examination import Examination
from sqlalchemy_fairqueue.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.figures.shared import Point, SharedFigures
from sqlalchemy_fairqueue.values.messages import FairBy
from sqlalchemy_fairqueue.values.reports import Reason
from tests.cli.messages import QUEUE, bury, enqueue, enqueue_group, lease
from tests.dashboard.conftest import Browse, visited
from tests.dashboard.scenario import set_aside
from tests.figures.test_reasons import prepare

PAGES = ("", "tenants", "plans", "limits", "groups", "dead", "schedules", "workers", "health")


def test_nothing(browse: Browse) -> None:
    """An installation without queues has pages too."""
    for page in PAGES:
        assert browse("viewer").get(page).status == 200
    assert "No queue has been used yet." in browse("viewer").get().text


def test_overview(browse: Browse, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview has each queue, the state of all in a sentence, and who waits longest. The headline tells of deaths
    and of a limit that is reached, the first of them in words.
    """
    # Doctor finds nothing: the tests' own server runs without autovacuum.
    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.reading.examine", lambda *_, **__: Examination("", 1, ()))
    enqueue(engine, "customer-7", "customer-7", "customer-8")
    page = browse("viewer").get()
    assert "Queue 'documents' has no consumer: 3 ready" in page.text
    assert "no consumer" in page.text
    assert page.links["customer-7"] == "tenant?queue=documents&channel=customer-7"
    lease(engine, 1)
    assert "All flows: 2 messages ready, the longest wait is " in browse("viewer").get().text
    QUEUE.bury(engine, lease(engine, 1))
    assert "Queue 'documents' has 1 dead letter, the last died " in browse("viewer").get().text
    QUEUE.configure(engine, max_concurrency=1)
    text = browse("viewer").get().text
    assert "Queue 'documents' is at its limit: 1 of 1 message out, 1 ready message held back" in text
    assert "; 1 further finding." in text
    QUEUE.pause(engine)
    assert "Queue 'documents' is paused for " in browse("viewer").get().text


def test_headline_has_the_checks(engine: Engine) -> None:
    """A finding of doctor, a backlog that grows and waits throughout a minute are in the headline, the worst first."""
    enqueue(engine, "customer-7", "customer-8")
    lease(engine, 1)
    figures = SharedFigures(engine).get()
    points = [Point(figures.at + timedelta(seconds=30 * number), 50 * number, timedelta()) for number in range(4)]
    growing = headline(figures, lambda _: points, None)
    assert growing == ("Queue 'documents' grows: from 0 to 150 messages in 1m 30s.", "warn")
    assert headline(figures, lambda _: points[:2], None)[1] == "good"
    waiting = replace(figures.queues["documents"], at=figures.at + timedelta(minutes=2))
    for calm, state in ((timedelta(seconds=61), "behind"), (timedelta(seconds=59), "flowing")):
        ages = (timedelta(minutes=2), calm, timedelta(minutes=2))
        lately = [Point(waiting.at - timedelta(seconds=20 * number), 1, age) for number, age in enumerate(ages)]
        assert queue_state(waiting, [Point(figures.at, 1, timedelta()), *lately])[0] == state
    clock = Finding("times", Level.PROBLEM, "the server's clock went back")
    health = Health([clock, Finding("queues", Level.PROBLEM, "older than the figures")])
    assert headline(figures, lambda _: points, health) == ("The server's clock went back; 1 further finding.", "bad")


def test_tenants(browse: Browse, engine: Engine) -> None:
    """A tenant stands with the reason of its wait and the tenants that take the capacity; reasons filter."""
    QUEUE.configure(engine, max_concurrency=2)
    enqueue(engine, "whale", "whale", "whale")
    lease(engine, 2)
    enqueue(engine, "minnow")
    QUEUE.configure_channel(engine, "late", weight=2)
    enqueue(engine, "late", delay=timedelta(hours=1))
    page = browse("viewer").get("tenants", queue="documents")
    assert "queue limit 2 of 2 messages of the queue are out; the longest is message 1 of whale" in page.text
    assert "taken by whale 100" in page.text
    assert "late \N{MULTIPLICATION SIGN}2" in page.text
    filtered = browse("viewer").get("tenants", queue="documents", reason="scheduled").text
    assert "late" in filtered
    assert "minnow" not in filtered


def test_shares_by_cost(browse: Browse, engine: Engine) -> None:
    """In a queue that is fair by cost, tenants stand with their share of the cost and of the messages."""
    QUEUE.configure(engine, fair_by="cost", history=True)
    for channel, cost in (("dear", 90), ("cheap", 10)):
        enqueue(engine, channel, cost=cost)
    QUEUE.complete(engine, lease(engine, 2))
    enqueue(engine, "dear", "cheap")
    [taken] = lease(engine, 1)
    page = browse("viewer").get("tenants", queue="documents")
    assert "90 % of 50 % by cost" in page.row("dear").text
    assert "10 % of 50 % by cost" in page.row("cheap").text
    assert page.row("cheap").tags.count("svg") == 2
    for channel in ("dear", "cheap"):
        share = 100 if channel == taken.channel else 0
        assert f" {share} % of 50 % by messages" in page.row(channel).text
        alone = browse("viewer").get("tenant", queue="documents", channel=channel).text
        assert f" has {share} % of the messages out." in alone
    page = browse("viewer").get("tenant", queue="documents", channel="cheap")
    assert "10 % of the cost that was served lately, and its weight entitles it to 50 %" in page.text


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
def test_shares_without_costs(browse: Browse, engine: Engine, fair_by: FairBy) -> None:
    """By messages alone a tenant has one share; a share by cost that is not known is a dash, and the page says why."""
    QUEUE.configure(engine, fair_by=fair_by)
    enqueue(engine, "a", "b")
    [taken] = lease(engine, 1)
    row = browse("viewer").get("tenants", queue="documents").row(taken.channel)
    page = browse("viewer").get("tenant", queue="documents", channel=taken.channel).text
    assert "100 % of 50 %" in row.text
    if fair_by == "messages":
        assert " by " not in row.text
        assert "not known" not in page
    else:
        assert f"\N{EN DASH} of 50 % by {fair_by}" in row.text
        assert "100 % of 50 % by messages" in row.text
        assert "is not known: the queue records no history" in page
        QUEUE.configure(engine, history=True)
        page = browse("viewer").get("tenant", queue="documents", channel=taken.channel).text
        assert "is not known: nothing with a cost ended lately" in page


def test_a_tenant(browse: Browse, engine: Engine) -> None:
    """A tenant's page has its figures, its policy and its messages, and no button for a viewer."""
    QUEUE.configure_channel(engine, "customer-7", max_concurrency=1, rate="10/s", weight=3)
    [first, second] = enqueue(engine, "customer-7", "customer-7")
    lease(engine, 1)
    page = browse("viewer").get("tenant", queue="documents", channel="customer-7")
    assert "own limit 1 of 1 message it may have out is out" in page.text
    assert {f"#{first}", f"#{second}"} <= page.links.keys()
    assert "10/s" in page.text
    assert page.forms == []
    assert browse("viewer").get("tenant", queue="documents", channel="nobody").status == 404
    assert browse("viewer").get("tenant", queue="nothing", channel="customer-7").status == 404


def test_a_message(browse: Browse, engine: Engine) -> None:
    """A message's page has what happened to it; its payload is for those who may see payloads."""
    [message_id] = enqueue(engine, "a", payload={"secret": "4711"}, kind="parse", headers={"trace": "t1"})
    for user, sees in (("viewer", False), ("reader", True)):
        page = browse(user).get("message", queue="documents", id=message_id)
        assert "waits for its turn" in page.text
        assert ("4711" in page.text, "t1" in page.text) == (sees, sees)
    lease(engine, 1)
    assert "held by" in browse("viewer").get("message", queue="documents", id=message_id).text
    [dead_id] = bury(engine, "b", payload={"secret": "4712"})
    for user, sees in (("viewer", False), ("reader", True)):
        page = browse(user).get("message", queue="documents", id=dead_id)
        assert "died after" in page.text
        assert ("ValueError: no such page" in page.text, "4712" in page.text) == (sees, sees)


def test_dead_letters(browse: Browse, engine: Engine) -> None:
    """Dead letters stand in groups by their error, whatever its numbers; the text is for those who may see it."""
    ids = enqueue(engine, "a", "b", "c", kind="parse")
    for number, delivery in enumerate(lease(engine)):
        error = f"Traceback\nTimeoutError: no answer from host {number}" if number < 2 else "KeyError: 'x'"
        QUEUE.bury(engine, delivery, reason="too many attempts", error=error)
    page = browse("reader").get("dead")
    assert "3 messages will not be tried again" in page.text
    assert page.text.count("TimeoutError: no answer from host #") == 1
    assert {f"#{message_id}" for message_id in ids} <= page.links.keys()
    hidden = browse("viewer").get("dead").text
    assert "TimeoutError" in hidden
    assert "no answer" not in hidden


def test_workers(browse: Browse, engine: Engine) -> None:
    """A consumer stands with what it holds."""
    [message_id] = enqueue(engine, "customer-7", kind="parse")
    [delivery] = lease(engine, 1)
    page = browse("viewer").get("workers")
    assert "1 consumer with a lease that has not expired." in page.text
    assert f"#{message_id}" in page.links
    assert "parse for" in page.text
    host, pid, _ = delivery.lease.consumer.rsplit(":", 2)
    assert f"process {pid} on {host}" in page.text
    assert "version" not in page.text
    assert page.forms == []
    QUEUE.complete(engine, delivery)


def test_health(browse: Browse) -> None:
    """The page of health has what doctor finds."""
    user = browse("viewer")
    page = user.get("health")
    while "The checks are being made." in page.text:
        page = user.get("health")
    assert "every table, index and function is as the migrations left it" in page.text


def test_held_snapshots(browse: Browse, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview has a snapshot that holds vacuum back for long, once the checks are made, and not another one."""
    enqueue(engine, "a")
    user = browse("viewer")
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as holder:
        pid = holder.exec_driver_sql("select pg_backend_pid()").scalar_one()
        for age, shown in ((timedelta(0), True), (timedelta(hours=1), False)):
            monkeypatch.setattr("sqlalchemy_fairqueue.doctor.server._WARNING_AGE", age)
            user.app.state.reading._kept.clear()
            user.app.state.reading._health = None
            while "The checks are being made." in user.get("health").text or user.app.state.reading._health is None:
                pass
            page = user.get()
            assert ("Held snapshots" in page.text, str(pid) in page.text) == (shown, shown)


_HOSTILE = (
    '"><img src=x onerror=alert(1)><script>alert(1)</script>{{ 7*7 }}'
    "two\nlines\x1b[2J[red]bold[/]'; drop table fq_message; a  köln"
)


@pytest.mark.parametrize("name", [_HOSTILE, "x" * 300], ids=["hostile", "long"])
def test_hostile_names(browse: Browse, engine: Engine, name: str) -> None:
    """A name or payload of anything is text on each page, and its links and forms lead to it."""
    queue = Queue(name)
    queue.configure(engine, history=True)
    queue.plans.configure(engine, name, weight=2)
    queue.schedules.set(engine, name, channel=name, every=timedelta(hours=1), kind=name[:60])
    [dead] = bury(engine, "z", queue=queue, kind=name[:60])
    queue.configure_channel(engine, name, plan=name)
    enqueue(engine, name, queue=queue, kind=name[:60], payload={"p": name})
    lease(engine, 1, queue=queue)
    group = enqueue_group(engine, "members", queue=queue, payload=name, kind=name[:60])
    [waiting] = enqueue(engine, name, queue=queue, kind=name[:60], payload={"p": name}, headers={"h": name})
    set_aside(engine, name, queue=name, words=name)
    user = browse("operator")
    tenant = user.get("tenant", queue=name, channel=name)
    pages = [tenant, user.get("group", queue=name, group=group), user.get("plan", queue=name, plan=name)]
    pages += [user.get(page) for page in PAGES] + [user.get("message", queue=name, id=one) for one in (waiting, dead)]
    pages += [user.get(page, queue=name) for page in ("tenants", "dead", "schedules", "workers", "plans", "groups")]
    for page in pages:
        assert page.status == 200
        assert set(page.loaded) <= {"static/style.css", "static/live.js"}
        assert page.handlers == []
        assert "img" not in page.tags
        assert "\x1b" not in page.text
    resumed = user.submit(tenant.form("Resume"))
    assert "Resumed." in resumed.text
    assert queue.channels(engine, name)[0].paused_at is None
    asked = user.submit(tenant.form("Purge…"))
    assert "Purged 1." in user.submit(asked.form("Delete them")).text


def test_every_answer_is_closed(browse: Browse, engine: Engine) -> None:
    """No answer may be framed, stored, or run anything from elsewhere; pages load two files, and both are there."""
    enqueue(engine, "a")
    client = browse("viewer").client
    for path in (*PAGES, "nothing", "static/style.css", "static/live.js", "static/icon.svg"):
        answer = client.get(f"/{path}", headers={"x-user": "viewer"})
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.status_code == (404 if path == "nothing" else 200)


def test_without_a_database() -> None:
    """A database that is away is said on the page, without its address."""
    engine = create_engine("postgresql+psycopg://somebody@127.0.0.1:1/nothing")
    with visited(create_dashboard(engine)) as client:
        answer = client.get("/")
    assert answer.status_code == 503
    assert "The database does not answer" in answer.text
    assert "somebody" not in answer.text


async def test_async_engine(async_engine: AsyncEngine, engine: Engine) -> None:
    """The pages of an AsyncEngine are awaited."""
    [message_id] = enqueue(engine, "a")
    app = create_dashboard(async_engine)
    await app.state.reading.figures.aget()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        for path in (*PAGES, "tenant?queue=documents&channel=a", f"message?queue=documents&id={message_id}"):
            assert (await client.get(f"/{path}")).status_code == 200, path


def test_the_beginning_of_a_payload() -> None:
    """It may end within a character; what is no text is shown as bytes."""
    assert payload_text("größe".encode()[:3], 7) == "gr\n…"
    assert payload_text('{"a": "ö"}'.encode(), 11) == '{\n  "a": "ö"\n}'
    assert payload_text(b"\xff\xfea", 3) == r"b'\xff\xfea'"


_CULPRITS = {
    Reason.QUEUE_LIMIT: ["taken by b 100"],
    Reason.QUEUE_RATE: ["taken by b 100"],
    Reason.SHARED_LIMIT: ["api", "queue summaries has 2 out", "taken by b 100"],
    Reason.SHARED_RATE: ["api of rate", "queue summaries of rate has 2 out", "taken by b 100"],
    Reason.TURN: ["taken by b 100"],
    Reason.ORDERING_KEY: ["behind message {before} "],
}
"""Who is named, where it is somebody else."""


def test_each_reason_stands_with_its_culprit(browse: Browse, engine: Engine) -> None:
    """The pages of all tenants, of those with the reason, of the tenant and of its message name the reason and whose
    fault it is.
    """
    viewer = browse("viewer")
    for reason in Reason:
        queue = reason.name
        message_id = prepare(engine, reason, Queue(queue))
        pages = [viewer.get("tenants", queue=queue), viewer.get("tenants", queue=queue, reason=reason)]
        told = [page.row("a").text for page in pages]
        told.append(viewer.get("tenant", queue=queue, channel="a").text)
        if reason is not Reason.SCHEDULED:
            told.append(viewer.get("message", queue=queue, id=message_id).text.replace("#", ""))
        culprits = [word.format(before=message_id - 1) for word in _CULPRITS.get(reason, [])]
        for text in told:
            assert f" {reason} " in f"{text} ", reason
            assert [word for word in culprits if word not in text] == [], reason
        for text in told[:2]:
            assert ("taken by" in text) == ("taken by b 100" in culprits), reason


def test_a_channel_that_is_set_aside(browse: Browse, engine: Engine) -> None:
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
