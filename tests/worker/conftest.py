from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue, Worker
from tests.chaos import proxy as proxies
from tests.fixtures.database import Database
from tests.worker.helpers import retimed

StartWorker = Callable[..., Worker]


@pytest.fixture
def queue() -> Queue:
    """A queue of the test's own, so that its handlers are too."""
    return Queue("documents")


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


@pytest.fixture
def proxy(database: Database) -> Iterator[proxies.Proxy]:
    """A proxy before the test's database."""
    with proxies.proxy(database.url) as made:
        yield made
