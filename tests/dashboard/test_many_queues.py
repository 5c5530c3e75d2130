"""Thousands of queues: pages of them, and reads that do not grow with their number."""

import re
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.dashboard import create_dashboard
from sqlalchemy_fairqueue.figures.shared import SharedFigures
from tests.cli.messages import statements
from tests.dashboard.conftest import Page, visited

_QUEUES = 20
"""So many are on a page."""
_COUNT = 2 * _QUEUES + 30


@pytest.fixture
def read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """More queues than two pages show, a few of them busy, and the statements that are sent from then on."""
    monkeypatch.setattr("sqlalchemy_fairqueue.dashboard.base.QUEUES", _QUEUES)
    with engine.begin() as connection:
        for number in range(_COUNT - 3):
            Queue(f"queue-{number:03}").configure(connection, max_concurrency=number + 1)
    for number in range(3):
        Queue(f"busy-{number}").enqueue_many(engine, [Enqueue(channel="customer-7", payload=1)])
    return statements(engine)


def _rows(page: Page) -> list[str]:
    return [link.removeprefix("tenants?queue=") for link in page.links.values() if link.startswith("tenants?queue=")]


def test_pages_of_the_overview(engine: Engine, read: list[str]) -> None:
    """The overview shows a part of the queues, leads through all of them, and finds them by a part of their name."""
    with visited(create_dashboard(engine, keep=timedelta(hours=1))) as client:

        def page(address: str) -> Page:
            answer = client.get(address)
            return Page(answer.status_code, answer.text)

        seen, address = [], "./"
        while address:
            found = page(f"/{address}")
            assert f"{_COUNT} queues" in found.text
            assert "has no consumer: " in found.text
            assert len(_rows(found)) <= _QUEUES
            seen += _rows(found)
            address = found.links.get("Next", "")
        idle = [f"queue-{number:03}" for number in range(_COUNT - 3)]
        assert sorted(seen) == ["busy-0", "busy-1", "busy-2", *idle]
        assert page("/?page=2").links["Before"] == "./?page=1"
        assert _rows(page("/?find=E-01")) == [f"queue-01{number}" for number in range(10)]
        assert "No queue has that in its name." in page("/?find=none").text
        assert _rows(page(f"/?page={10**12}")) == _rows(page("/?page=4"))
        for bad in ("0", "-1", "x", "1.5", "9" * 5_000, "%00", "%D9%A1"):
            assert page(f"/?page={bad}").status == 404
    assert sum("fq_contention(" in statement for statement in read) == 1


def test_other_pages(engine: Engine, read: list[str]) -> None:
    """Other pages go through as many queues at most, and do not name all of them as links or choices."""
    for path in "tenants", "plans", "limits", "groups", "dead", "schedules", "workers":
        read.clear()
        with visited(create_dashboard(engine, keep=timedelta(hours=1))) as client:
            answer = client.get(f"/{path}")
            assert answer.status_code == httpx.codes.OK, path
            assert len(set(re.findall(r"queue-\d{3}", answer.text))) <= _QUEUES, path
            one = Page(200, client.get(f"/{path}?queue=queue-050").text)
            assert one.links["queue-050"] == f"{path}?queue=queue-050"
            assert client.get(f"/{path}?queue=queue-05").status_code == httpx.codes.NOT_FOUND, path
        assert 0 < len(read) <= _QUEUES + 20, path


def test_statements_of_figures(engine: Engine, read: list[str]) -> None:
    """Figures of many queues are read by as many statements as those of one."""
    SharedFigures(engine, [Queue("busy-0")]).get()
    for_one = len(read)
    read.clear()

    found = SharedFigures(engine).get()

    assert len(read) <= for_one + 1
    assert len(found.queues) == _COUNT
    assert [one.name for one in found.queues.values() if one.backlog] == ["busy-0", "busy-1", "busy-2"]
    assert found.queues["queue-041"].stats.max_concurrency == 42
    for name in ("busy-1", "queue-041"):
        queue = found.queues[name]
        with engine.connect() as connection:
            of = Queue(name)
            contention = of.admin.contention(connection, limit=200)
            assert queue.stats == of.stats(connection)
            channels = tuple(replace(one, wait=None) for one in queue.contention.channels)
            assert (channels, queue.contention.waiting) == (contention.channels, contention.waiting)
            assert list(queue.consumers) == list(of.admin.consumers(connection))
