"""The dashboard as people see it: pages asked for by a viewer, an operator or a stranger, read as HTML."""

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import uvicorn
from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.requests import Request

from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard

_VOID = {"meta", "link", "input", "rect", "br"}


@dataclass
class Form:
    """A form of a page."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    button: str = ""


class Page(HTMLParser):
    """A page: its text, links and forms, and what runs or is loaded."""

    def __init__(self, status: int, html: str) -> None:
        super().__init__()
        self.status = status
        self.html = html
        self.links: dict[str, str] = {}
        self.forms: list[Form] = []
        self.loaded: list[str] = []
        self.handlers: list[str] = []
        self.tags: list[str] = []
        self._words: list[str] = []
        self._select = ""
        self._open: list[tuple[str, dict[str, str]]] = []
        self.feed(html)

    @property
    def text(self) -> str:
        """The text of the page, white space as one blank."""
        return " ".join(" ".join(self._words).split())

    def row(self, channel: str) -> "Page":
        """The row of a tenant, by a name that needs no escape."""
        rows = re.findall(r"<tr>.*?</tr>", self.html, re.DOTALL)
        [found] = [row for row in rows if f'channel={channel}">' in row.split("</th>")[0]]
        return Page(self.status, found)

    def form(self, button: str) -> Form:
        """The form with this button."""
        [found] = [form for form in self.forms if form.button == button]
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what matters."""
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "script" or (tag == "link" and given.get("rel") != "icon"):
            self.loaded.append(given.get("src") or given.get("href") or "inline")
        if tag == "form":
            self.forms.append(Form(given["action"], given["method"]))
        if tag == "input" and "name" in given and self.forms and given.get("type") != "checkbox":
            self.forms[-1].fields[given["name"]] = given.get("value", "")
        if tag == "select":
            self._select = given["name"]
        if tag == "option" and ("selected" in given or self._select not in self.forms[-1].fields):
            self.forms[-1].fields[self._select] = given.get("value", "")
        if tag not in _VOID:
            self._open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        """Leave the element."""
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Keep the text, and whose it is."""
        tag, given = self._open[-1] if self._open else ("", {})
        if tag not in {"script", "style"}:
            self._words.append(data)
        if tag == "a" and data.strip():
            self.links[data.strip()] = given.get("href", "")
        if tag == "button" and self.forms:
            self.forms[-1].button = data.strip()


class Browser:
    """A browser without JavaScript, of somebody with a name."""

    def __init__(self, client: httpx.Client, user: str, app: Starlette) -> None:
        self.client = client
        self.user = user
        self.app = app

    def get(self, path: str = "", **query: object) -> Page:
        """Open a page, on which all is new."""
        self.app.state.reading.forget()
        address = f"{path}?{urlencode(query)}" if query else path
        answer = self.client.get(f"/{address}", headers={"x-user": self.user})
        return Page(answer.status_code, answer.text)

    def submit(self, form: Form, **values: str) -> Page:
        """Send a form, with other values where they are given."""
        answer = self.client.post(
            f"/{form.action}",
            data=form.fields | values,
            headers={"x-user": self.user, "origin": str(self.client.base_url).rstrip("/")},
        )
        return Page(answer.status_code, answer.text)


def authorize(request: Request) -> Access | None:
    """Access by the header that the tests send."""
    return {
        "viewer": Access("vera"),
        "reader": Access("rita", payloads=True),
        "operator": Access("otto", Role.OPERATOR, payloads=True),
    }.get(request.headers.get("x-user", ""))


Browse = Callable[[str], Browser]
Audit = Callable[[], list[str]]


class _Server(uvicorn.Server):
    """A server that ends when it is told to, where uvicorn's looks ten times a second."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1, lifespan="off"))
        self.ready = threading.Event()
        self._ended = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait for the end."""
        await self._ended.wait()

    def end(self) -> None:
        """End it."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._ended.set)


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """Serve an application on a free port, and give its address."""
    server = _Server(app)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.ready.wait(30)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.end()
        thread.join()


class Visitor(httpx.Client):
    """A visitor that asks again, as browsers do, while the dashboard reads its first figures."""

    def request(self, *arguments: Any, **named: Any) -> httpx.Response:
        """Ask until the page is there."""
        while (answer := super().request(*arguments, **named)).status_code == httpx.codes.ACCEPTED:
            pass
        return answer


@contextmanager
def visited(app: Starlette, *, follow: bool = True) -> Iterator[httpx.Client]:
    """Serve an application and visit it."""
    with served(app) as address, Visitor(base_url=address, follow_redirects=follow, timeout=60) as client:
        yield client


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Audit:
    """The record of what operators did: ``audit()``."""
    logger = "sqlalchemy_fairqueue.dashboard.audit"
    caplog.set_level(logging.INFO, logger)
    return lambda: [record.message for record in caplog.records if record.name == logger]


@pytest.fixture
def browse(engine: Engine) -> Iterator[Browse]:
    """Open the dashboard as somebody: ``browse("operator")``."""
    app = create_dashboard(engine, authorize=authorize, keep=timedelta(hours=1))
    with visited(app) as client:
        yield lambda user: Browser(client, user, app)
