"""The dashboard within applications: its pages, files and actions work below any path."""

from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
from tests.cli.messages import QUEUE, enqueue
from tests.dashboard.conftest import Page


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


_FRAMEWORKS = {"Starlette": _starlette, "FastAPI": _fastapi, "Litestar": _litestar, "Django": _django}


@pytest.mark.parametrize("mounted", _FRAMEWORKS.values(), ids=_FRAMEWORKS)
async def test_below_a_path(engine: Engine, mounted: Callable[[Starlette], ASGIApp]) -> None:
    """Pages, their files and links, and an action with its form, all below the path."""
    enqueue(engine, "customer-7")
    access = Access("dana@example.com", Role.OPERATOR)
    dashboard = create_dashboard(engine, authorize=lambda _: access, keep=timedelta(hours=1))
    await dashboard.state.reading.figures.aget()
    transport: Any = httpx.ASGITransport(app=mounted(dashboard))
    async with httpx.AsyncClient(transport=transport, base_url="http://test", follow_redirects=True) as client:
        overview = await client.get("/queues/")
        page = Page(overview.status_code, overview.text)
        assert (page.status, "customer-7" in page.text) == (200, True)
        for link in [*page.loaded, page.links["customer-7"]]:
            assert (await client.get(overview.url.join(link))).status_code == 200, link
        address = overview.url.join(page.links["customer-7"])
        form = Page(200, (await client.get(address)).text).form("Pause")
        done = await client.post(address.join(form.action), data=form.fields, headers={"origin": "http://test"})
        assert (done.status_code, "Paused." in done.text, done.url.path) == (200, True, "/queues/tenant")
    assert QUEUE.channels(engine, "customer-7")[0].paused_at is not None
