"""Open pages are told of new figures, at a cost that does not grow with the viewers."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import Connection, Engine, text
from starlette.requests import Request

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
from sqlalchemy_fairqueue.dashboard.application import Beat
from sqlalchemy_fairqueue.dashboard.base import PageBase
from sqlalchemy_fairqueue.dashboard.reading import Reading
from sqlalchemy_fairqueue.dashboard.rendering import rendered
from sqlalchemy_fairqueue.figures.queues import QueueFigures, figures_now
from tests.cli.messages import QUEUE, enqueue, lease, statements
from tests.dashboard.conftest import Page, served, visited


def _is_bounded(statement: str) -> bool:
    """Whether it reads the contention of tenants, and not that of whole queues."""
    return "fq_contention(" in statement and "e.element" not in statement


def test_events(engine: Engine) -> None:
    """A stream says when there are new figures, and nothing about them."""
    enqueue(engine, "customer-7")
    app = create_dashboard(engine, keep=timedelta(milliseconds=50))
    with visited(app) as client, client.stream("GET", "/live") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = iter(answer.iter_lines())
        told = [line for line, _ in zip(lines, range(8), strict=False)]
    assert "event: figures" in told
    assert "customer-7" not in "".join(told)


def test_many_pages_cost_one_reading(engine: Engine) -> None:
    """However many pages ask, the database is asked once."""
    enqueue(engine, "customer-7")
    read = statements(engine)
    app = create_dashboard(engine, keep=timedelta(hours=1))
    with visited(app) as client:
        for _ in range(3):
            for page in ("/", "/tenants", "/tenant?queue=documents&channel=customer-7", "/workers", "/dead"):
                assert client.get(page).status_code == 200
    assert sum("fq_contention" in statement for statement in read) == 1
    assert sum("fq_channel_stats" in statement for statement in read) == 1
    assert sum("fq_message_details" in statement for statement in read) == 1


def test_open_pages_are_made_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Viewers with the same rights get one page within a moment, each with their own name and their own token."""
    enqueue(engine, "customer-7")
    made: list[str] = []

    def counted(template: str, **values: object) -> str:
        made.append(template)
        return rendered(template, **values)

    def authorize(request: Request) -> Access:
        name, role = request.headers["user"].split()
        return Access(name, Role(role))

    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.base.rendered", counted)
    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.base._MOST_SHARED_SECONDS", 3600)
    app = create_dashboard(engine, authorize=authorize, keep=timedelta(hours=1))
    address = "/tenant?queue=documents&channel=customer-7"
    tokens = []
    with visited(app) as client:
        for user in ("<ann> operator", "ben operator", "cleo viewer"):
            client.cookies.clear()
            answer = client.get(address, headers={"user": user})
            tokens.append(answer.cookies["fairqueue_csrf"])
            names = {name for name in ("&lt;ann&gt;", "<ann>", "ben", "cleo") if name in answer.text}
            assert names == {user.split()[0].replace("<", "&lt;").replace(">", "&gt;")}
            assert f'name="csrf" value="{tokens[-1]}"' in answer.text or user == "cleo viewer"
    assert len(set(tokens)) == 3
    assert made == ["tenant.html", "tenant.html"]


@pytest.fixture
def old_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take so long to read that they are kept for hours."""
    monkeypatch.setattr("sqlalchemy_fairqueue.figures.shared.DUTY", 1e9)
    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.reading.DUTY", 0)


@pytest.mark.usefixtures("old_figures")
def test_reasons_are_new_where_figures_are_old(engine: Engine) -> None:
    """Where figures take so long that they are kept for longer, tables, tenants and messages have reasons of now."""
    [message_id, _] = enqueue(engine, "customer-7", "taker")
    paths = ["/tenant?queue=documents&channel=customer-7", f"/message?queue=documents&id={message_id}"]
    app = create_dashboard(engine, keep=timedelta(microseconds=1))

    def verdicts(client: httpx.Client) -> list[str]:
        pages = [client.get(path).text.partition('class="verdict">')[2].partition("</p>")[0] for path in paths]
        alone = [" ".join(Page(200, page).text.split()) for page in pages]
        tables = [client.get(path).text for path in ("/", "/tenants", "/tenants?queue=documents")]
        return alone + [Page(200, page).row("customer-7").text for page in tables]

    def all_have(client: httpx.Client, *words: str) -> bool:
        found = verdicts(client)
        assert [one for one in found for word in words if word not in one] == []
        return len(found) == 5

    with visited(app) as client:
        assert all_have(client, "no consumer")
        QUEUE.pause(engine, "customer-7")
        lease(engine, 1)
        QUEUE.resume(engine, "customer-7")
        assert all_have(client, "others' turn", "taken by taker")
        QUEUE.configure(engine, max_concurrency=1)
        assert all_have(client, "queue limit", "1 of 1 message of the queue is out", "taken by taker")
        QUEUE.pause(engine)
        assert all_have(client, "queue paused", "the queue is paused since")
        page = client.get("/tenants?queue=documents&reason=queue+paused").text
        assert "waits and their reasons as of" in page
        assert "customer-7" in Page(200, page).links
        assert "customer-7" not in Page(200, client.get("/tenants?reason=no+consumer").text).links


@pytest.mark.usefixtures("old_figures")
def test_reasons_of_old_figures_cost_one_reading(engine: Engine) -> None:
    """Tables and pages of tenants that are open together read the reasons of their queue once, also of several; open
    pages are told to ask again.
    """
    enqueue(engine, "customer-7", "customer-8", "customer-9")
    app = create_dashboard(engine, keep=timedelta(hours=1))
    app.state.reading.figures._keep = 0.0
    read = statements(engine)
    tables = ["/", "/tenants"]
    paths = [*tables, *(f"/tenant?queue=documents&channel=customer-{number}" for number in (7, 8, 9))]
    with visited(app) as client:
        for order in (tables, paths, paths[::-1]):
            app.state.reading.forget()
            read.clear()
            for path in order * 2:
                text = client.get(path).text
                assert ("no consumer" in text, "waits and their reasons as of" in text) == (True, path in tables)
            assert sum(map(_is_bounded, read)) == 1
            assert sum("fq_contention(e.element" in statement for statement in read) == 1
    with (
        visited(create_dashboard(engine, keep=timedelta(milliseconds=50))) as client,
        client.stream("GET", "/live") as answer,
    ):
        lines = iter(answer.iter_lines())
        told = [line for line, _ in zip(lines, range(12), strict=False) if line.startswith("data:")]
    assert len(told) >= 2
    assert len(set(told)) == 1


@pytest.mark.usefixtures("old_figures")
async def test_a_page_waits_for_no_reading_without_its_tenant(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the reasons of other tenants are being read, one that is asked for besides is read at once."""
    enqueue(engine, "customer-7", "customer-8")
    begun, may_end = threading.Event(), threading.Event()

    def read(connection: Connection, queue: Queue, figures: QueueFigures, channels: Sequence[str]) -> QueueFigures:
        if list(channels) == ["customer-7"]:
            begun.set()
            assert may_end.wait(60)
        return figures_now(connection, queue, figures, channels)

    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.base.figures_now", read)
    reading = Reading(engine, [], schema=None, keep=timedelta(hours=1))
    pages, figures = PageBase(reading, None), await reading.figures.aget()
    queue = figures.queues["documents"]
    first = asyncio.create_task(pages.tenant_row(queue, figures, "customer-7"))
    try:
        assert await asyncio.to_thread(begun.wait, 60)
        second = await asyncio.wait_for(pages.tenant_row(queue, figures, "customer-8"), 60)
        assert second is not None
        assert second.channel.channel == "customer-8"
        assert not first.done()
    finally:
        may_end.set()
    assert (await first) is not None


@pytest.mark.usefixtures("old_figures")
def test_many_queues_are_read_for_those_that_wait_longest(engine: Engine) -> None:
    """The overview of many queues reads the reasons of those alone whose tenants it shows."""
    queues = [Queue(f"queue-{number}") for number in range(8)]
    for queue in queues:
        queue.enqueue_many(engine, [Enqueue(channel="customer-7", payload=1)])
    read = statements(engine)
    with visited(create_dashboard(engine, keep=timedelta(hours=1))) as client:
        assert client.get("/").text.count("no consumer") >= 5
        assert sum(map(_is_bounded, read)) == 5
        text = client.get("/tenants").text
        assert all(f"queue={queue.name}" in text for queue in queues)
    assert sum(map(_is_bounded, read)) == len(queues)


def test_open_pages_load_less_often_where_they_cost_more(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time between loads is thirty times what the last one took, from seven tenths of *keep* to five of it."""
    now = 100.0
    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.application.monotonic", lambda: now)
    reading = Reading(engine, [], schema=None, keep=timedelta(seconds=2))
    beat = Beat(reading)
    for cost, seconds in ((0.0, 1.4), (0.04, 1.4), (0.1, 3.0), (5.0, 10.0)):
        reading.spent += cost
        assert beat.seconds == pytest.approx(seconds)
        now += 1.0
        assert beat.seconds == pytest.approx(seconds - 1.0)
        now += seconds - 1.0 + 0.001


async def test_what_is_kept_counts_from_its_begin(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read slowly is kept for less, so that what happened meanwhile is seen as soon; a quarter is left."""
    now = 100.0
    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.reading.monotonic", lambda: now)
    reading = Reading(engine, [], schema=None, keep=timedelta(seconds=2))
    numbers = iter(range(100))

    async def read(seconds: float) -> int:
        nonlocal now
        now += seconds
        return next(numbers)

    async def number(took: float) -> int:
        return await reading.shared("reasons", lambda: read(took), 0.5, always=True)

    assert await number(0.3) == 0
    for later, found in ((0.19, 0), (0.02, 1)):
        now += later
        assert await number(2.0) == found
    for later, found in ((0.124, 1), (0.002, 2)):
        now += later
        assert await number(0.0) == found


def test_the_first_page_comes_at_once(engine: Engine) -> None:
    """While the first figures are being read each page says so and asks again, and the stream says when they are."""
    enqueue(engine, "customer-7")
    app = create_dashboard(engine, keep=timedelta(hours=1))
    with served(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        with engine.begin() as held:
            held.execute(text("lock table fq_queue_state"))
            for path in ("/", "/tenants", "/workers"):
                answer = client.get(path)
                assert (answer.status_code, "The figures are being read" in answer.text) == (202, True)
                assert '<meta http-equiv="refresh"' in answer.text
            with client.stream("GET", "/live?at=") as stream:
                lines = stream.iter_lines()
                assert next(lines) == "retry: 3000"
                held.rollback()
                assert "event: figures" in lines
        assert "customer-7" in client.get("/tenants").text


def test_a_database_that_fails_at_first(engine: Engine) -> None:
    """A first reading that fails is said, and the next one is tried anew."""
    enqueue(engine, "customer-7")
    app = create_dashboard(engine)
    with visited(app) as client:
        with engine.begin() as broken:
            broken.execute(text("alter function fq_contention rename to fq_nothing"))
        assert client.get("/").status_code == 503
        with engine.begin() as mended:
            mended.execute(text("alter function fq_nothing rename to fq_contention"))
        assert client.get("/").status_code == 200
