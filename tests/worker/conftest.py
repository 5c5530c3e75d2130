import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from tests.chaos.proxy import Proxy
from tests.fixtures.database import Database
from tests.worker.helpers import Busy, retimed

MakeWorker = Callable[..., Worker | AsyncWorker]
StartWorker = Callable[..., Worker]


@pytest.fixture
def queue() -> Queue:
    """A queue of the test's own, so that its handlers are too."""
    return Queue("documents")


@pytest.fixture
def handled(queue: Queue) -> Queue:
    """The queue with a handler that does nothing."""
    queue.handler()(lambda _: None)
    return queue


@pytest.fixture
def seen(queue: Queue) -> list[object]:
    """The payloads that the queue's handler was called with."""
    payloads: list[object] = []
    queue.handler()(lambda delivery: payloads.append(delivery.payload))
    return payloads


@pytest.fixture
def busy() -> Iterator[Busy]:
    """A handler that is at work until it may end, with the test at the latest: ``queue.handler()(busy)``."""
    handler = Busy()
    yield handler
    handler.go.set()


@pytest.fixture
def effects(database: Database) -> None:
    """A business table that counts effects."""
    database.execute("create table effect (message_id bigint)")


@pytest.fixture
def start(engine: Engine) -> Iterator[StartWorker]:
    """Workers that are stopped after the test: ``start(queue, concurrency=1, timings={"stale_after": 9.0})``."""
    workers: list[Worker] = []

    def start_one(*queues: Queue, timings: Mapping[str, float] | None = None, **options: Any) -> Worker:
        worker = retimed(Worker(engine, *queues, **{"housekeeping": False, **options}), **(timings or {}))
        worker.start()
        workers.append(worker)
        return worker

    yield start_one
    for worker in workers:
        worker.stop(timedelta())


@pytest.fixture(params=["in threads", "in a loop"])
def make(request: pytest.FixtureRequest, engine: Engine, async_engine: AsyncEngine) -> MakeWorker:
    """Make a worker of either class, as ``start`` does; ``call`` calls its methods."""

    def make_one(*queues: Queue, timings: Mapping[str, float] | None = None, **options: Any) -> Worker | AsyncWorker:
        options, of_plain = {"housekeeping": False, **options}, sessionmaker(engine)
        if request.param == "in threads":
            made: Worker | AsyncWorker = Worker(engine, *queues, session_factory=of_plain, **options)
        else:
            made = AsyncWorker(async_engine, *queues, sync_session_factory=of_plain, **options)
        return retimed(made, **(timings or {}))

    return make_one


@pytest.fixture
def drain(make: MakeWorker) -> MakeWorker:
    """Let a worker of either class do all that is due: ``drain(queue, concurrency=1)``; the worker."""

    def run(*queues: Queue, **options: Any) -> Worker | AsyncWorker:
        worker = make(*queues, **options)
        if (running := worker.run(drain=True)) is not None:
            asyncio.run(running)
        return worker

    return run


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """A proxy before the test's database."""
    with closing(Proxy(database.url)) as made:
        yield made
