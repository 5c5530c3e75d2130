"""The throughput of a queue beside ten open dashboards, and without."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from time import monotonic, process_time
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, make_url, text

from sqlalchemy_fairqueue import Enqueue
from sqlalchemy_fairqueue.dashboard import create_dashboard
from tests.bench.dashboards import QUEUE, address_of, watch
from tests.bench.figures import Figure
from tests.bench.processes import backend_cpu
from tests.dashboard.conftest import served

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Event

    from sqlalchemy import Engine

    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_SIDES = ("alone", "beside")
_VIEWERS = 10
_BATCH = 100
_NAME = "bench dashboard"


def test_ten_open_dashboards(stage: Stage, report: Report, *, full: bool) -> None:
    """A queue gets at least 97 % of the messages through that it does alone.

    Slices with open pages and without follow each other; the server, the dashboard and the viewers share its cores. On
    a machine that others use too, the second figure says more: the part of its processor time that goes to them.
    """
    channels, rounds, seconds = (100_000, 20, 10.0) if full else (10_000, 8, 4.0)
    filled = stage.fill("fair", channels=channels, messages=3 * channels)
    url = make_url(stage.conninfo(filled.name)).set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    QUEUE.configure(engine, history=True)
    context = multiprocessing.get_context("spawn")
    opened, stopped = context.Event(), context.Event()
    spent: SimpleQueue[float] = context.SimpleQueue()
    pages = [address_of("tenants"), "/", address_of("tenant", channel="channel-7"), address_of("workers")]
    arguments = (url.render_as_string(hide_password=False), pages, opened, stopped, spent)
    viewers = context.Process(target=_view, args=arguments)
    viewers.start()
    done: dict[str, list[float]] = {side: [] for side in _SIDES}
    try:
        for number in range(rounds + 1):
            for side in _SIDES if number % 2 else _SIDES[::-1]:
                (opened.set if side == "beside" else opened.clear)()
                rate = _throughput(engine, channels, seconds)
                done[side] += [rate] if number else []
    finally:
        stopped.set()
        viewers.join(60)
        engine.dispose()
        stage.drop(filled)
    assert viewers.exitcode == 0
    part = spent.get() / (os.cpu_count() or 1) * 100
    what = f"in and out beside {_VIEWERS} open dashboards, {channels:,} channels, {3 * channels:,} messages"
    report.add(Figure(what, "messages/s", done["beside"], done["alone"], "without", 0.97))
    what = f"{what}: processor time of the dashboard, its viewers and its backends, of the machine's"
    report.add(Figure(what, "%", [part], [3.0], "3 %", 1.0, "less"))


def _throughput(engine: Engine, channels: int, seconds: float) -> float:
    """Messages a second that are dequeued, completed and enqueued anew."""
    began = monotonic()
    count = 0
    while monotonic() - began < seconds:
        taken = QUEUE.dequeue(engine, limit=_BATCH)
        QUEUE.complete(engine, taken)
        names = [f"channel-{(count + number) * 7919 % channels + 1}" for number in range(len(taken))]
        QUEUE.enqueue_many(engine, [Enqueue(channel=name, payload=1) for name in names])
        count += len(taken)
    return count / (monotonic() - began)


def _view(url: str, pages: list[str], opened: Event, stopped: Event, spent: SimpleQueue[float]) -> None:
    """Serve a dashboard in this process, with viewers while they are wanted; tell the processor time a second."""
    engine = create_engine(url, connect_args={"application_name": _NAME})
    loads, seconds = 0, 0.0
    with served(create_dashboard(engine, QUEUE)) as address:
        began = _spent(engine)
        while not stopped.is_set():
            if opened.wait(0.1):
                since = monotonic()
                shown = [pages[number % len(pages)].lstrip("/") for number in range(_VIEWERS)]
                loads += asyncio.run(watch(address, shown, lambda: stopped.is_set() or not opened.is_set()))
                seconds += monotonic() - since
        spent.put((_spent(engine) - began) / seconds)
    engine.dispose()
    assert loads


def _spent(engine: Engine) -> float:
    """The seconds of processor time of this process and of its backends, which its pool keeps."""
    with engine.connect() as connection:
        named = text("select pid from pg_stat_activity where application_name = :name")
        return process_time() + sum(map(backend_cpu, connection.execute(named, {"name": _NAME}).scalars()))
