"""``fairqueue dashboard``."""

import re
import signal
import socket

import httpx
import pytest
from sqlalchemy import Engine

from tests.cli.conftest import Cli, Start
from tests.cli.messages import enqueue
from tests.dashboard.conftest import Visitor


def test_the_command(start: Start, engine: Engine) -> None:
    """``fairqueue dashboard`` serves pages and metrics to this machine by its own names, read-only."""
    enqueue(engine, "customer-7")
    with start("dashboard", "--port", "0") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        with Visitor(timeout=60) as visitor:
            page = visitor.get(f"{found[0]}tenant?queue=documents&channel=customer-7")
        assert "customer-7" in page.text
        assert "Preview the change" not in page.text
        assert httpx.get(found[0], headers={"host": "evil.example"}).status_code == 400
        assert 'fairqueue_messages{queue="documents",state="ready"} 1.0' in httpx.get(f"{found[0]}metrics/").text
        process.send_signal(signal.SIGTERM)
        # As uvicorn ends: by the signal itself, once all is closed.
        assert process.wait(60) in {0, -signal.SIGTERM}


def test_an_address_that_is_taken(cli: Cli) -> None:
    """The command says so; the status is that of a bad command line, not the server's own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = cli("dashboard", "--port", str(port))
    assert found.status == 2
    assert f"127.0.0.1:{port} cannot be served" in found.err


@pytest.mark.parametrize("option", ["--operator", "--payloads"])
def test_nobody_else_may_act(cli: Cli, option: str) -> None:
    """A dashboard without a login changes nothing for others, and shows them no payloads."""
    found = cli("dashboard", "--host", "0.0.0.0", option)  # noqa: S104 - it is refused
    assert found.status == 2
    assert "for this machine alone" in found.err
