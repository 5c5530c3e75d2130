"""The page about the dashboard is true, and so is its command."""

import re
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import sqlalchemy
from sqlalchemy import Engine

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.values.reports import Reason
from tests.cli.conftest import Cli, Start
from tests.cli.conftest import bare_cli as bare_cli  # noqa: PLC0414 - a fixture
from tests.cli.conftest import cli as cli  # noqa: PLC0414
from tests.cli.conftest import named as named  # noqa: PLC0414
from tests.cli.conftest import start as start  # noqa: PLC0414
from tests.cli.messages import enqueue
from tests.dashboard.conftest import Visitor

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "dashboard.md"

on_the_page = pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")


@on_the_page
async def test_the_example_runs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application of the page lets an admin, a member of the staff and nobody else in."""
    fastapi = pytest.importorskip("fastapi")
    assert fastapi.FastAPI
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    enqueue(engine, "customer-7")
    users = {
        "admin": SimpleNamespace(email="a@x", is_admin=True, is_staff=True),
        "staff": SimpleNamespace(email="s@x", is_admin=False, is_staff=True),
        "guest": SimpleNamespace(email="g@x", is_admin=False, is_staff=False),
    }
    names: dict[str, Any] = {"user_of": lambda request: users.get(request.headers.get("x-user"))}
    for example in re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL):
        exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    page = "/queues/tenant?queue=documents&channel=customer-7"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://test") as client:
        while (await client.get(page, headers={"x-user": "admin"})).status_code == httpx.codes.ACCEPTED:
            pass
        found = {user: await client.get(page, headers={"x-user": user}) for user in (*users, "nobody")}
    assert {user: answer.status_code for user, answer in found.items()} == {
        "admin": 200, "staff": 200, "guest": 403, "nobody": 303,
    }  # fmt: skip
    assert ("Preview the change" in found["admin"].text, "Preview the change" in found["staff"].text) == (True, False)


@on_the_page
def test_every_reason_is_there() -> None:
    """The page has each reason of a wait."""
    cells = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", _PAGE.read_text(), re.MULTILINE)
    assert {reason for cell in cells for reason in cell.split(", ")} >= set(Reason)


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
