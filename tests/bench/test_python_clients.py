"""Clients in one Python process: consumers in two threads, an AsyncWorker, and business transactions in eight."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from tests.bench.figures import Figure, each_once, rate
from tests.bench.processes import Task, send_out
from tests.bench.python_loads import Load, bare_loops, drain_async, loops

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.processes import Watch
    from tests.bench.stage import Stage

_THREADS = 8
_QUEUE = Queue("bench", schema="fairqueue")


def _url(conninfo: str, driver: str = "psycopg") -> str:
    return make_url(conninfo).set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


def _client_us(watch: Watch) -> float:
    return watch.client_cpu / len(watch.ids) * 1e6


def test_batches_of_two_threads(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Two threads lease and complete batches of 100 at half of the speed of psycopg alone on the unfair bound."""
    messages = 100_000 if full else 20_000
    filled = {side: stage.fill(side, channels=1_000, messages=messages) for side in ("fair", "plain")}
    rates: dict[str, list[float]] = {"fair": [], "plain": []}
    clients: dict[str, list[float]] = {"fair": [], "plain": []}

    def measure(side: str) -> None:
        with stage.clone(filled[side]) as conninfo:
            job = Load(_url(conninfo), threads=2, enough=messages)
            watches = send_out([Task(loops if side == "fair" else bare_loops, (job,))])
        each_once(watches, messages=messages)
        rates[side].append(rate(watches))
        clients[side].append(_client_us(watches[0]))

    alternate(measure, ("fair", "plain"))
    for one in filled.values():
        stage.drop(one)
    what = f"lease and complete by 100 in one Python process of two threads, {messages:,} messages"
    bound = "the unfair bound by psycopg alone"
    report.add(Figure(what, "messages/s", rates["fair"], rates["plain"], bound, 0.5))
    report.add(Figure(f"{what}, client", "us", clients["fair"], clients["plain"], bound, None, "less"))


def test_an_async_worker_on_asyncpg(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """An AsyncWorker drains a queue on asyncpg as fast as on psycopg."""
    messages = 50_000 if full else 10_000
    filled = stage.fill("fair", channels=1_000, messages=messages)
    rates: dict[str, list[float]] = {"asyncpg": [], "psycopg": []}
    clients: dict[str, list[float]] = {"asyncpg": [], "psycopg": []}

    def measure(side: str) -> None:
        with stage.clone(filled) as conninfo:
            job = Load(_url(conninfo, side), threads=8, enough=messages)
            watches = send_out([Task(drain_async, (job,))])
        each_once(watches, messages=messages)
        rates[side].append(rate(watches))
        clients[side].append(_client_us(watches[0]))

    alternate(measure, ("asyncpg", "psycopg"))
    stage.drop(filled)
    what = f"drain through AsyncWorker on asyncpg, no-op handler, {messages:,} messages"
    report.add(Figure(what, "messages/s", rates["asyncpg"], rates["psycopg"], "psycopg", 1.0))
    report.add(Figure(f"{what}, client", "us", clients["asyncpg"], clients["psycopg"], "psycopg", None, "less"))


def test_transactions_of_eight_threads(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Eight threads of 5 ms transactions keep 0.92 of their speed when each transaction enqueues too."""
    each = 400 if full else 60
    filled = stage.fill("fair", channels=1, messages=0)
    rates: dict[str, list[float]] = {"enqueue": [], "insert": []}
    clients: dict[str, list[float]] = {"enqueue": [], "insert": []}
    with stage.clone(filled) as conninfo:
        engine = create_engine(_url(conninfo), pool_size=_THREADS)
        with engine.begin() as connection:
            connection.execute(text("create table work (id bigint generated always as identity, content text)"))

        def measure(side: str) -> None:
            used = time.process_time()
            rates[side].append(_transactions(engine, side, each))
            clients[side].append((time.process_time() - used) / (_THREADS * each) * 1e6)

        for side in rates:
            # Connects and plans.
            _transactions(engine, side, 8)
        alternate(measure, [*rates])
        engine.dispose()
    stage.drop(filled)
    what = f"{_THREADS} threads of 5 ms transactions, an enqueue each"
    report.add(Figure(what, "transactions/s", rates["enqueue"], rates["insert"], "no enqueue", 0.92))
    report.add(Figure(f"{what}, client", "us", clients["enqueue"], clients["insert"], "no enqueue", None, "less"))


def _transactions(engine: Engine, side: str, each: int) -> float:
    """Let threads of one tenant insert, work for 5 ms and commit, and enqueue on one side; transactions a second."""

    def client() -> None:
        for number in range(each):
            with Session(engine) as session, session.begin():
                session.execute(text("insert into work (content) values (repeat('x', 100))"))
                if side == "enqueue":
                    _QUEUE.enqueue(session, channel="tenant-0", payload=number)
                session.execute(text("select pg_sleep(0.005)"))

    threads = [threading.Thread(target=client) for _ in range(_THREADS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _THREADS * each / (time.monotonic() - began)
