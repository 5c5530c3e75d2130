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
_TEXTS = {
    "nothing": "",
    "NUL": "%00",
    "a NUL within": "customer%007",
    "a surrogate": "%ED%A0%80",
    "no UTF-8": "%FF%C3%28",
    "a noncharacter": "%EF%BF%BF",
    "a half escape": "%",
    "too long": "x" * 9_000,
}
_NUMBERS = {
    "5,000 digits": "9" * 5_000,
    "above a bigint": "9223372036854775808",
    "negative": "-1",
    "zero": "0",
    "a sign": "%2B1",
    "a fraction": "1.5",
    "an exponent": "1e5",
    "infinity": "inf",
    "no number": "nan",
    "Arabic digits": "%D9%A1",
    "a superscript": "%C2%B2",
    "an underscore": "1_000",
    "a blank": "%201",
}
_VALUES = _TEXTS | _NUMBERS
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


@pytest.mark.parametrize("address", [*_NAMING, *_IGNORING])
async def test_values_of_addresses(
    app: Starlette, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """A value that nothing has is an answer of 400 or 404, and the pages that others look at are there after it."""
    monkeypatch.setattr("sqlalchemy_fairqueue.figures.shared.DUTY", 1e9)
    for what, value in _VALUES.items():
        expected = {200} if address in _IGNORING else {400, 404}
        if address.startswith(("none", "plan?queue=documents")):
            # An operator may make a plan of that name.
            expected = {200, 400, 404}
        elif not value and "queue={}" not in address:
            expected = {200, 400, 404}
        assert (await client.get("/" + address.format(value))).status_code in expected, what
    app.state.reading.forget()
    for good in ("/", "/tenant?queue=documents&channel=customer-7"):
        assert (await client.get(good)).status_code == 200, good


@pytest.mark.parametrize("action", _SUBJECTS)
async def test_values_of_actions(post: Callable[..., Any], engine: Engine, action: str) -> None:
    """An action on something that nothing is changes nothing, and says that it is not there."""
    given = {"channel": "customer-7", "id": "1", "schedule": "none", "plan": "none", "group": _GROUP}
    subject = _SUBJECTS[action]
    before = QUEUE.channels(engine)
    for what, value in _VALUES.items():
        if not value:
            continue
        query = "&".join(f"{name}={text}" for name, text in (given | {subject: value}).items())
        assert await post(f"action={action}&{query}", "to=other") in {303, 400, 404}, what
    assert QUEUE.channels(engine) == before


@pytest.mark.parametrize("action", ["policy", "plan", "move"])
async def test_values_of_forms(post: Callable[..., Any], action: str) -> None:
    """What somebody enters is kept or refused."""
    for name in ("to",) if action == "move" else _FIELDS:
        for what, value in _VALUES.items():
            query = f"action={action}&channel=customer-7&id=1&plan=free"
            assert await post(query, f"{name}={value}") in {303, 400, 404}, (name, what)


@pytest.mark.parametrize("value", ["[", "[::1", "x:port", "http://[", "a b", "x" * 9_000, "9" * 5_000, "\xaa" * 64])
@pytest.mark.parametrize("name", ["host", "origin", "cookie", "sec-fetch-site", "content-length"])
async def test_headers(client: httpx.AsyncClient, post: Callable[..., Any], name: str, value: str) -> None:
    """A header that nobody sends by chance hinders no page to be read, and lets no action through that has it."""
    sent = f"fairqueue_csrf={value}" if name == "cookie" else value
    assert (await client.get("/", headers={name.encode(): sent.encode("latin-1")})).status_code == 200
    form = f"csrf={value}" if name == "cookie" else ""
    status = await post("action=pause&channel=customer-7", form, **{name: sent.encode("latin-1")})
    assert status == (413 if name == "content-length" else 303 if name == "host" else 403)
