"""Requests with values that nothing can have: each is refused, and costs nobody else anything."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine
from starlette.applications import Starlette

from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
from sqlalchemy_fairqueue.values.policies import POLICY
from tests.cli.messages import QUEUE, enqueue

_GROUP = "00000000-0000-0000-0000-000000000001"
# Nothing, NULs, a surrogate, no UTF-8, a noncharacter, half an escape, too long.
_TEXTS = ("", "%00", "customer%007", "%ED%A0%80", "%FF%C3%28", "%EF%BF%BF", "%", "x" * 9_000)
# Too many digits, above a bigint, below 1, with a sign; what only some parsers take; Arabic digits, a superscript.
_NUMBERS = ("9" * 5_000, "9223372036854775808", "-1", "0", "%2B1", "1.5", "1e5", "inf", "nan", "1_000", "%201",
            "%D9%A1", "%C2%B2")  # fmt: skip
_VALUES = (*_TEXTS, *_NUMBERS)
_IDS = ("message?queue=documents&id={}", "group?queue=documents&group={}", "?done=purge&count={}", "id")
"""Where a number is read as one: elsewhere it is a text like others."""
_NAMING = (
    "tenants?queue={}", "tenant?queue=documents&channel={}", "tenant?queue={}&channel=customer-7",
    "message?queue=documents&id={}", "message?queue={}&id=1", "plans?queue={}", "plan?queue={}&plan=free",
    "plan?queue=documents&plan=none-{}", "groups?queue={}", "group?queue=documents&group={}", "dead?queue={}",
    "schedules?queue={}", "workers?queue={}", "messages?queue={}", "audit?queue={}", "none-{}",
)  # fmt: skip
_IGNORING = ("?done={}", "?done=purge&count={}", "tenants?reason={}", "groups?state={}", "health?any={}")
_SUBJECTS = {
    "pause": "channel", "resume": "channel", "purge": "channel", "policy": "channel", "cancel": "id", "move": "id",
    "retry": "id", "redrive": "id", "purge_dead": "id",
    "run_schedule": "schedule", "pause_schedule": "schedule", "resume_schedule": "schedule", "remove_plan": "plan",
    "cancel_group": "group",
}  # fmt: skip
_FIELDS = (*POLICY, "plan")


def _values(place: str) -> tuple[str, ...]:
    return _VALUES if place in _IDS else _TEXTS


@pytest.fixture
def app(engine: Engine) -> Starlette:
    """A dashboard of operators."""
    QUEUE.plans.configure(engine, "free", max_concurrency=2)
    enqueue(engine, "customer-7")
    access = Access("otto", Role.OPERATOR, payloads=True)
    return create_dashboard(engine, authorize=lambda _: access, keep=timedelta(hours=1))


@pytest.fixture
async def client(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """A browser, which lets an error that has no page through."""
    await app.state.reading.figures.aget()
    transport: Any = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as browser:
        yield browser


@pytest.fixture
def post(client: httpx.AsyncClient) -> Callable[..., Any]:
    """Send a form with the token that the browser has."""

    async def send(query: str, form: str = "", **headers: Any) -> int:
        if "fairqueue_csrf" not in client.cookies:
            assert (await client.get("/")).status_code == 200
        body = f"csrf={client.cookies['fairqueue_csrf']}&confirmed=yes&{form}"
        kind = {"content-type": "application/x-www-form-urlencoded"}
        answer = await client.post(f"/act?queue=documents&{query}", content=body, headers=kind | headers)
        return answer.status_code

    return send


async def test_values_of_addresses(app: Starlette, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that nothing has is an answer of 400 or 404, and the pages that others look at are there after it."""
    monkeypatch.setattr("sqlalchemy_fairqueue.figures.shared.DUTY", 1e9)
    for address in (*_NAMING, *_IGNORING):
        for value in _values(address):
            expected = {200} if address in _IGNORING else {400, 404}
            # An operator may make a plan of that name.
            if address.startswith(("none", "plan?queue=documents")) or (not value and "queue={}" not in address):
                expected = {200, 400, 404}
            assert (await client.get("/" + address.format(value))).status_code in expected, (address, value[:30])
        app.state.reading.forget()
        for good in ("/", "/tenant?queue=documents&channel=customer-7"):
            assert (await client.get(good)).status_code == 200, (address, good)


async def test_values_of_actions(post: Callable[..., Any], engine: Engine) -> None:
    """An action on something that nothing is changes nothing, and says that it is not there."""
    given = {"channel": "customer-7", "id": "1", "schedule": "none", "plan": "none", "group": _GROUP}
    before = QUEUE.channels(engine)
    for action, subject in _SUBJECTS.items():
        for value in filter(None, _values(subject)):
            query = "&".join(f"{name}={text}" for name, text in (given | {subject: value}).items())
            assert await post(f"action={action}&{query}", "to=other") in {303, 400, 404}, (action, value[:30])
        assert QUEUE.channels(engine) == before


async def test_values_of_forms(post: Callable[..., Any]) -> None:
    """What somebody enters is kept or refused."""
    # A plan and a tenant have one editor.
    fields = [("policy", name) for name in _FIELDS] + [("plan", "rate"), ("move", "to")]
    for action, name in fields:
        for value in _VALUES if action == "policy" else _TEXTS:
            query = f"action={action}&channel=customer-7&id=1&plan=free"
            assert await post(query, f"{name}={value}") in {303, 400, 404}, (action, name, value[:30])


async def test_headers(client: httpx.AsyncClient, post: Callable[..., Any]) -> None:
    """A header that nobody sends by chance hinders no page to be read, and lets no action through that has it."""
    statuses = {"host": 303, "origin": 403, "cookie": 403, "sec-fetch-site": 403, "content-length": 413}
    for value in ("[", "[::1", "x:port", "http://[", "a b", "x" * 9_000, "9" * 5_000, "\xaa" * 64):
        for name, expected in statuses.items():
            sent = (f"fairqueue_csrf={value}" if name == "cookie" else value).encode("latin-1")
            assert (await client.get("/", headers={name.encode(): sent})).status_code == 200
            form = f"csrf={value}" if name == "cookie" else ""
            assert await post("action=pause&channel=customer-7", form, **{name: sent}) == expected, (name, value)
