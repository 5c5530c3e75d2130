"""The page about the dashboard is true."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import sqlalchemy
from sqlalchemy import Engine

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.values.reports import Reason
from tests.cli.messages import enqueue

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
        name: SimpleNamespace(email=f"{name}@x", is_admin=name == "admin", is_staff=name != "guest")
        for name in ("admin", "staff", "guest")
    }
    names: dict[str, Any] = {"user_of": lambda request: users.get(request.headers.get("x-user"))}
    for example in re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL):
        exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    page = "/queues/tenant?queue=documents&channel=customer-7"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://test") as client:
        while (await client.get(page, headers={"x-user": "admin"})).status_code == httpx.codes.ACCEPTED:
            pass
        found = {user: await client.get(page, headers={"x-user": user}) for user in (*users, "nobody")}
    assert [answer.status_code for answer in found.values()] == [200, 200, 403, 303]
    assert ("Preview the change" in found["admin"].text, "Preview the change" in found["staff"].text) == (True, False)


@on_the_page
def test_every_reason_is_there() -> None:
    """The page has each reason of a wait."""
    cells = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", _PAGE.read_text(), re.MULTILINE)
    assert {reason for cell in cells for reason in cell.split(", ")} >= set(Reason)
