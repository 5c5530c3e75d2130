from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue import Queue, Worker
from sqlalchemy_fairqueue.worker import heartbeat
from tests.fixtures.database import SCHEMA_VERSION, Database, MakeDatabase, install

StartWorker = Callable[..., Worker]


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    """The test's own database with the newest schema, which workers are about."""
    if SCHEMA_VERSION > 1:
        return make_database()
    database = make_database(installed=False)
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.begin() as connection:
        install(connection, version=2)
    return database


@pytest.fixture
def long_lease(monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """A lease that no machine stalls for, and that workers extend several times a second all the same."""
    monkeypatch.setattr(heartbeat, "_BEATS", 20_000)
    return timedelta(hours=1)


@pytest.fixture
def queue() -> Queue:
    """A queue of the test's own, so that its handlers are too."""
    return Queue("documents")


@pytest.fixture
def start(engine: Engine) -> Iterator[StartWorker]:
    """Workers that are stopped after the test: ``start(queue, concurrency=1)`` gives one."""
    workers: list[Worker] = []

    def start_one(*queues: Queue, **options: Any) -> Worker:
        worker = Worker(engine, *queues, **{"housekeeping": False, **options})
        worker.start()
        workers.append(worker)
        return worker

    yield start_one
    for worker in workers:
        worker.stop(timedelta())
