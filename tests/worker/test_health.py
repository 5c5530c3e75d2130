"""Health of workers, as their supervisors see it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.worker import runtime
from sqlalchemy_fairqueue.worker.options import WorkerOptions
from tests.chaos.proxy import Proxy
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import call, until


async def test_a_life(make: MakeWorker, handled: Queue) -> None:
    """It is alive all the time, and ready from its start to its stop, whichever thread asks."""
    worker = make(handled)
    for step, ready, problems in (
        (None, False, ("it is not started",)),
        (worker.start, True, ()),
        (worker.stop, False, ("it stops, or has stopped",)),
    ):
        if step is not None:
            await call(step)
        found = await call(worker.health)
        assert (found.alive, found.ready, found.problems) == (True, ready, problems)


def test_a_database_that_is_away(handled: Queue, proxy: Proxy) -> None:
    """A worker that cannot reach its database is alive and not ready, and ready again when it can."""
    engine = create_engine(proxy.url)
    worker = Worker(engine, handled, housekeeping=False)
    with worker:
        assert worker.health().ready
        proxy.go_away()
        found = worker.health()
        assert (found.alive, found.ready) == (True, False)
        assert "the database does not serve it: OperationalError" in found.problems[0]
        proxy.come_back()
        until(lambda: worker.health().ready, "it is ready again")
    engine.dispose()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_database_that_is_silent(
    handled: Queue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    """Neither a call nor a new connection that nobody answers keeps a probe for longer than it waits for an answer."""
    monkeypatch.setattr(runtime, "_ANSWER_SECONDS", 0.2)
    url = proxy.url.set(drivername="postgresql+asyncpg") if is_async else proxy.url
    engine = create_async_engine(url) if is_async else create_engine(url)
    check = runtime.HealthCheck(WorkerOptions(engine=engine, queues=(handled,)))
    assert check.unanswered() == []
    proxy.trap = b"database"
    proxy.fall_silent()
    assert check.unanswered()
    assert "has not answered a new connection for 0.2 s" in check.unanswered()[0]
    check.close()


def test_probes_that_come_at_once(engine: Engine, handled: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes that come while another one waits for the database have its answer: together they take as long as one."""
    check = runtime.HealthCheck(WorkerOptions(engine=engine, queues=(handled,)))
    came, asked = threading.Semaphore(0), []

    def clock() -> float:
        came.release()
        return monotonic()

    def run(_: object) -> None:
        asked.append(all(came.acquire(timeout=PATIENCE.total_seconds()) for _ in range(3)))

    monkeypatch.setattr(runtime, "monotonic", clock)
    monkeypatch.setattr(check._connection, "run", run)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: check.unanswered(), range(3)))
    assert found == [[]] * 3
    assert asked == [True]


def test_a_database_that_takes_no_writes(handled: Queue, database: Database) -> None:
    """A worker on a standby is not ready, and ready once a new connection reaches the primary."""
    engine = create_engine(database.url)
    failed_over = False

    @event.listens_for(engine, "do_connect")
    def connect(_: Any, __: Any, ___: Any, parameters: dict[str, Any]) -> None:
        if not failed_over:
            parameters["options"] = "-c default_transaction_read_only=on"

    with Worker(engine, handled, housekeeping=False) as worker:
        found = worker.health()
        assert (found.alive, found.ready) == (True, False)
        assert "the server takes no writes" in found.problems[0]
        failed_over = True
        until(lambda: worker.health().ready, "it is ready")
    engine.dispose()


async def test_an_async_worker(handled: Queue, async_engine: AsyncEngine) -> None:
    """The same in an event loop, asked from another thread: the loop itself could not go on while it waits."""
    worker = AsyncWorker(async_engine, handled, housekeeping=False)
    async with worker:
        with pytest.raises(WorkerError, match=r"await asyncio\.to_thread\(worker\.health\)"):
            worker.health()
        assert (await asyncio.to_thread(worker.health)).ready


def test_a_stop_while_it_asks(handled: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's signal handler may stop the worker in the thread that asks for its health."""
    worker = Worker(engine, handled, housekeeping=False)
    monkeypatch.setattr(runtime, "check_writable", lambda _: worker.stop())
    with worker:
        worker.health()
        assert worker.health().problems == ("it stops, or has stopped",)


def test_threads_that_ended_and_handlers_that_hang(start: StartWorker, handled: Queue) -> None:
    """Such a worker cannot go on by itself."""
    worker = start(handled, concurrency=1)
    worker.stats.hung = 1
    found = worker.health()
    assert (found.alive, found.ready, found.problems) == (False, False, ("all of its 1 handlers hang",))
    worker.stats.hung = 0
    runtime = worker._runtime
    assert runtime is not None
    runtime.fetcher.stop()
    until(lambda: not worker.health().alive, "its thread has ended")
    assert worker.health().problems == (f"its thread {worker.name}-fetch has ended",)
