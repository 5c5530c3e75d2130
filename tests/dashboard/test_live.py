"""Open pages are told of new figures, at a cost that does not grow with the viewers."""

from datetime import timedelta

import httpx
import pytest
from sqlalchemy import Engine, event, text

from sqlalchemy_fairqueue.dashboard import create_dashboard
from tests.cli.messages import QUEUE, enqueue, lease
from tests.dashboard.conftest import Page, served, visited


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
    """A hundred pages ask the database once."""
    enqueue(engine, "customer-7")
    read: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: read.append(arguments[2]))
    app = create_dashboard(engine, keep=timedelta(hours=1))
    with visited(app) as client:
        for _ in range(20):
            for page in ("/", "/tenants", "/tenant?queue=documents&channel=customer-7", "/workers", "/dead"):
                assert client.get(page).status_code == 200
    assert sum("fq_contention" in statement for statement in read) == 1
    assert sum("fq_channel_stats" in statement for statement in read) == 1
    assert sum("fq_message_details" in statement for statement in read) == 1


def test_reasons_are_new_where_figures_are_old(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where figures take so long that they are kept for longer, a tenant and its messages have reasons of their own."""
    monkeypatch.setattr("sqlalchemy_fairqueue.figures.shared.DUTY", 1e9)
    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.reading.DUTY", 0)
    [message_id, _] = enqueue(engine, "customer-7", "taker")
    paths = ["/tenant?queue=documents&channel=customer-7", f"/message?queue=documents&id={message_id}"]
    app = create_dashboard(engine, keep=timedelta(microseconds=1))

    def verdicts(client: httpx.Client) -> list[str]:
        pages = [client.get(path).text.partition('class="verdict">')[2].partition("</p>")[0] for path in paths]
        return [" ".join(Page(200, page).text.split()) for page in pages]

    with visited(app) as client:
        assert all(words.startswith("no consumer") for words in verdicts(client))
        QUEUE.pause(engine, "customer-7")
        lease(engine, 1)
        QUEUE.resume(engine, "customer-7")
        assert all(words.startswith("others' turn") and "taken by taker" in words for words in verdicts(client))
        QUEUE.configure(engine, max_concurrency=1)
        assert all(words.startswith("queue limit 1 of the 1 messages") for words in verdicts(client))
        QUEUE.pause(engine)
        assert all(words.startswith("queue paused the queue is paused since") for words in verdicts(client))
        assert "no consumer" in client.get("/tenants").text


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
