"""Open pages are told of new figures, at a cost that does not grow with the viewers."""

from datetime import timedelta

from sqlalchemy import Engine, event

from sqlalchemy_fairqueue.dashboard import create_dashboard
from tests.cli.messages import enqueue
from tests.dashboard.conftest import visited


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
