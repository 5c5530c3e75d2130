"""Pages of the dashboard and reasons of waits at 100,000 channels with messages, beside traffic."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

import httpx
from sqlalchemy import create_engine, make_url

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.dashboard import create_dashboard
from sqlalchemy_fairqueue.figures import Reason
from tests.bench.figures import Figure
from tests.dashboard.conftest import Page, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_QUEUE = Queue("bench", schema="fairqueue")
_HOUR = timedelta(hours=1)
_KEPT_SECONDS = 2.0
_PAGE_SECONDS = 0.2
_ROUNDS = 40


def test_pages_and_reasons_at_many_busy_channels(stage: Stage, report: Report, *, full: bool) -> None:
    """The p95 of each page is below 200 ms, and a tenant's page names each reason within two seconds."""
    channels = 100_000 if full else 20_000
    filled = stage.fill("fair", channels=channels, messages=3 * channels)
    with stage.clone(filled) as conninfo:
        engine = create_engine(make_url(conninfo).set(drivername="postgresql+psycopg"))
        try:
            took = _measured(engine, channels)
            late = _named(engine)
        finally:
            engine.dispose()
    stage.drop(filled)
    for page, seconds in took.items():
        p95 = sorted(seconds)[int(len(seconds) * 0.95)]
        what = f"the page of {page}, {channels:,} channels with messages beside traffic, p95"
        report.add(Figure(what, "ms", [p95 * 1000], [_PAGE_SECONDS * 1000], "200 ms", 1.0, "less"))
    worst = max(late, key=late.__getitem__)
    what = f"until a tenant's page names the reason of its wait, {channels:,} channels, the latest: {worst}"
    report.add(Figure(what, "s", [late[worst]], [_KEPT_SECONDS], "2 s", 1.0, "less"))


def _measured(engine: Engine, channels: int) -> dict[str, list[float]]:
    """The seconds of each request by page, beside traffic, while a fifth of the channels have a message out."""
    _QUEUE.configure(engine, history=True)
    held = 0
    while held < channels // 5:
        held += len(_QUEUE.dequeue(engine, limit=2000, lease=_HOUR))
    took: dict[str, list[float]] = {}
    with _traffic(engine, channels), _visited(engine) as client:
        for _ in range(_ROUNDS):
            pages = {
                "all tenants": "/tenants?queue=bench",
                "a tenant": f"/tenant?queue=bench&channel=channel-{random.randint(1, channels)}",  # noqa: S311
                "all queues": "/",
            }
            for page, path in pages.items():
                began = monotonic()
                assert client.get(path).status_code == httpx.codes.OK
                took.setdefault(page, []).append(monotonic() - began)
    return took


def _named(engine: Engine) -> dict[str, float]:
    """The seconds until the page of a tenant names its reason, by reason, each after what causes it."""
    _QUEUE.enqueue_many(engine, [Enqueue(channel="waits", payload=1)])
    causes: list[tuple[Reason, Callable[[], object], Callable[[], object]]] = [
        (Reason.PAUSED, lambda: _QUEUE.pause(engine, "waits"), lambda: _QUEUE.resume(engine, "waits")),
        (Reason.QUEUE_PAUSED, lambda: _QUEUE.pause(engine), lambda: _QUEUE.resume(engine)),
        (
            Reason.QUEUE_LIMIT,
            lambda: _QUEUE.configure(engine, max_concurrency=1),
            lambda: _QUEUE.configure(engine, max_concurrency=None),
        ),
        (Reason.SHARED_LIMIT, lambda: _share(engine, max_concurrency=1), lambda: _share(engine, max_concurrency=None)),
    ]
    late = {}
    with _visited(engine) as client:
        for reason, cause, end in causes:
            cause()
            late[str(reason)] = _until_named(client, "waits", reason)
            end()
    return late


def _share(engine: Engine, *, max_concurrency: int | None) -> None:
    _QUEUE.configure_limit(engine, "api", max_concurrency=max_concurrency)
    _QUEUE.configure(engine, limits=["api"])


def _until_named(client: httpx.Client, channel: str, reason: Reason) -> float:
    began = monotonic()
    while monotonic() - began < 10 * _KEPT_SECONDS:
        html = client.get(f"/tenant?queue=bench&channel={channel}").text
        verdict = Page(200, html.partition('class="verdict">')[2].partition("</p>")[0])
        if verdict.text.startswith(reason):
            break
    return monotonic() - began


@contextmanager
def _visited(engine: Engine) -> Iterator[httpx.Client]:
    with (
        served(create_dashboard(engine, _QUEUE)) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        while client.get("/").status_code == httpx.codes.ACCEPTED:
            pass
        yield client


@contextmanager
def _traffic(engine: Engine, channels: int) -> Iterator[None]:
    """Complete messages, and enqueue others to channels at random."""
    stopped = threading.Event()

    def consume() -> None:
        while not stopped.is_set():
            _QUEUE.complete(engine, _QUEUE.dequeue(engine, limit=50))

    def produce() -> None:
        while not stopped.wait(0.05):
            names = [f"channel-{random.randint(1, channels)}" for _ in range(50)]  # noqa: S311
            _QUEUE.enqueue_many(engine, [Enqueue(channel=name, payload=1) for name in names])

    threads = [threading.Thread(target=work) for work in (consume, produce)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
