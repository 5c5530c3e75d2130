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
    a machine that others use too, the second figure says more: the part of its processor time that the dashboard takes,
    with its connections to the server. The viewers, which in practice are browsers elsewhere, are counted apart.
    """
    channels, rounds, seconds = (100_000, 20, 10.0) if full else (10_000, 8, 4.0)
    filled = stage.fill("fair", channels=channels, messages=3 * channels)
    url = make_url(stage.conninfo(filled.name)).set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    QUEUE.configure(engine, history=True)
    context = multiprocessing.get_context("spawn")
    opened, stopped = context.Event(), context.Event()
    address: SimpleQueue[str] = context.SimpleQueue()
    served_by: SimpleQueue[float] = context.SimpleQueue()
    viewed_by: SimpleQueue[float] = context.SimpleQueue()
    given = url.render_as_string(hide_password=False)
    processes = [
        context.Process(target=_serve, args=(given, opened, stopped, address, served_by)),
        context.Process(target=_view, args=(opened, stopped, address, viewed_by)),
    ]
    for process in processes:
        process.start()
    done: dict[str, list[float]] = {side: [] for side in _SIDES}
    try:
        for number in range(rounds + 1):
            for side in _SIDES if number % 2 else _SIDES[::-1]:
                (opened.set if side == "beside" else opened.clear)()
                rate = _throughput(engine, channels, seconds)
                done[side] += [rate] if number else []
    finally:
        stopped.set()
        for process in processes:
            process.join(60)
        engine.dispose()
        stage.drop(filled)
    assert [process.exitcode for process in processes] == [0, 0]
    machine = (rounds + 1) * seconds * (os.cpu_count() or 1) / 100
    dashboard, connections, viewers = served_by.get() / machine, served_by.get() / machine, viewed_by.get() / machine
    loads = viewed_by.get()
    assert loads
    what = f"in and out beside {_VIEWERS} open dashboards, {channels:,} channels, {3 * channels:,} messages"
    report.add(Figure(what, "messages/s", done["beside"], done["alone"], "without", 0.97))
    what = f"{what}: processor time of the dashboard and its connections, of the machine's"
    notes = {
        "the dashboard": f"{dashboard:.2f} %",
        "its connections": f"{connections:.2f} %",
        "the viewers, beside": f"{viewers:.2f} %, {loads / (rounds + 1) / seconds:.1f} pages a second",
    }
    report.add(Figure(what, "%", [dashboard + connections], [3.0], "3 %", 1.0, "less", notes))


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


def _serve(url: str, opened: Event, stopped: Event, address: SimpleQueue[str], spent: SimpleQueue[float]) -> None:
    """Serve a dashboard in this process; tell the processor time that it and its connections take."""
    engine = create_engine(url, pool_size=20, connect_args={"application_name": _NAME})
    with served(create_dashboard(engine, QUEUE)) as at:
        address.put(at)
        opened.wait()
        began = process_time(), _backends(engine)
        stopped.wait()
        spent.put(process_time() - began[0])
        spent.put(_backends(engine) - began[1])
    engine.dispose()


def _view(opened: Event, stopped: Event, address: SimpleQueue[str], spent: SimpleQueue[float]) -> None:
    """Look at the dashboard while that is wanted; tell the processor time that it takes."""
    pages = [address_of("tenants"), "/", address_of("tenant", channel="channel-7"), address_of("workers")]
    shown = [pages[number % len(pages)].lstrip("/") for number in range(_VIEWERS)]
    at, loads = address.get(), 0
    opened.wait()
    began = process_time()
    while not stopped.is_set():
        if opened.wait(0.1):
            loads += asyncio.run(watch(at, shown, lambda: stopped.is_set() or not opened.is_set()))
    spent.put(process_time() - began)
    spent.put(loads)


def _backends(engine: Engine) -> float:
    """The processor time of the connections of the dashboard, which its pool keeps, in seconds."""
    with engine.connect() as connection:
        named = text("select pid from pg_stat_activity where application_name = :name")
        return sum(map(backend_cpu, connection.execute(named, {"name": _NAME}).scalars()))
