"""The dashboard within applications: its pages, files and actions work below any path."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
from tests.cli.messages import QUEUE, enqueue
from tests.dashboard.conftest import Page, visited


def _starlette(dashboard: Starlette) -> ASGIApp:
    return Starlette(routes=[Mount("/queues", dashboard)])


def _fastapi(dashboard: Starlette) -> ASGIApp:
    fastapi = pytest.importorskip("fastapi")
    app: Any = fastapi.FastAPI()
    app.mount("/queues", dashboard)
    return app  # type: ignore[no-any-return]


def _litestar(dashboard: Starlette) -> ASGIApp:
    litestar = pytest.importorskip("litestar")
    mounted = litestar.asgi("/queues", is_mount=True, copy_scope=True)(dashboard)
    return litestar.Litestar([mounted], logging_config=None)  # type: ignore[no-any-return]


def _django(dashboard: Starlette) -> ASGIApp:
    conf = pytest.importorskip("django.conf")
    if not conf.settings.configured:
        conf.settings.configure(
            ROOT_URLCONF=ModuleType("urls"), SECRET_KEY=__name__, ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None
        )
    asgi = pytest.importorskip("django.core.asgi")
    return Starlette(routes=[Mount("/queues", dashboard), Mount("/", asgi.get_asgi_application())])


def _fastapi_with_root(root_path: str, dashboard: Starlette) -> ASGIApp:
    app: Any = _fastapi(dashboard)
    app.root_path = root_path
    return app  # type: ignore[no-any-return]


def _alone(dashboard: Starlette) -> ASGIApp:
    return dashboard


_ROOT = "/api"
_FRAMEWORKS = (_starlette, _fastapi, _litestar, _django)


def _behind(mounted: Callable[[Starlette], ASGIApp], root_path: str, strips: bool, dashboard: Starlette) -> ASGIApp:  # noqa: FBT001 - for partial
    """A server that serves below /api, and says so by its root_path, behind a proxy that strips that, or does not."""
    app = mounted(dashboard)

    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith(f"{_ROOT}/")
        changed: Scope = {**scope, "root_path": root_path}
        if strips:
            changed["path"] = scope["path"].removeprefix(_ROOT)
            changed["raw_path"] = scope["raw_path"].removeprefix(_ROOT.encode())
        await app(changed, receive, send)

    return server


_with_root, _with_slash = partial(_fastapi_with_root, _ROOT), partial(_fastapi_with_root, f"{_ROOT}/")
_PLACES: list[tuple[Callable[[Starlette], ASGIApp], str]] = [
    *((mounted, "/queues") for mounted in _FRAMEWORKS),
    *((partial(_behind, one, _ROOT, strips), f"{_ROOT}/queues") for one in _FRAMEWORKS for strips in (True, False)),
    *((partial(_behind, _with_root, "", strips), f"{_ROOT}/queues") for strips in (True, False)),
    (partial(_behind, _with_slash, "", True), f"{_ROOT}/queues"),
    *((partial(_behind, _alone, _ROOT, strips), _ROOT) for strips in (True, False)),
]


async def test_below_a_path(engine: Engine) -> None:
    """Pages, their files and links, and an action with its form, all below the path, also behind a proxy."""
    enqueue(engine, "customer-7")
    access = Access("dana@example.com", Role.OPERATOR)
    dashboard = create_dashboard(engine, authorize=lambda _: access, keep=timedelta(hours=1))
    for place in _PLACES:
        mounted, path = place
        dashboard.state.reading.forget()
        await dashboard.state.reading.figures.aget()
        transport: Any = httpx.ASGITransport(app=mounted(dashboard))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", follow_redirects=True) as client:
            overview = await client.get(f"{path}/")
            page = Page(overview.status_code, overview.text)
            assert (page.status, "customer-7" in page.text) == (200, True), place
            for link in [*page.loaded, page.links["customer-7"]]:
                assert (await client.get(overview.url.join(link))).status_code == 200, (place, link)
            address = overview.url.join(page.links["customer-7"])
            form = Page(200, (await client.get(address)).text).form("Pause")
            done = await client.post(address.join(form.action), data=form.fields, headers={"origin": "http://test"})
            assert (done.status_code, "Paused." in done.text, done.url.path) == (200, True, f"{path}/tenant"), place
        assert QUEUE.channels(engine, "customer-7")[0].paused_at is not None
        QUEUE.resume(engine, "customer-7")


_ORIGINS = [
    ("http", "x.test", "http://x.test", True),
    ("http", "x.test:80", "http://x.test", True),
    ("http", "x.test:443", "https://x.test", True),
    ("https", "X.test", "https://x.test", True),
    ("http", "x.test:8443", "https://x.test:8443", True),
    ("http", "[2001:db8::1]:443", "https://[2001:db8::1]", True),
    ("https", "x.test", "http://x.test", False),
    ("http", "x.test:443", "http://x.test", False),
    ("http", "", "null", False),
    ("http", "", "https://", False),
    *(
        ("http", "x.test", f"https://{host}", False)
        for host in ("x.test:8443", "x.test@evil.test", "[", "x.test:99999")
    ),
    *(("http", "x.test", origin, False) for origin in ("https://evil.test", "null", "", "ftp://x.test")),
]


def test_origins(engine: Engine) -> None:
    """A form is of the site that it is sent to if only the port of the scheme differs, which a proxy may write out."""
    enqueue(engine, "customer-7")
    access = Access("otto", Role.OPERATOR)
    proxied: Any = ProxyHeadersMiddleware(create_dashboard(engine, authorize=lambda _: access))  # type: ignore[arg-type]
    with visited(proxied, follow=False) as client:
        for scheme, host, origin, own in _ORIGINS:
            client.cookies.clear()
            headers = {"host": host, "x-forwarded-proto": scheme}
            answer = client.get("/tenant?queue=documents&channel=customer-7", headers=headers)
            [form] = [one for one in Page(200, answer.text).forms if one.button in {"Pause", "Resume"}]
            assert ("Secure" in answer.headers["set-cookie"]) is (scheme == "https")
            client.cookies.clear()
            cookie = f"fairqueue_csrf={form.fields['csrf']}"
            sent = headers | {"origin": origin, "cookie": cookie}
            status = client.post(f"/{form.action}", data=form.fields, headers=sent).status_code
            assert status == (303 if own else 403), (scheme, host, origin)
