from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Worker
from tests.chaos.books import Books
from tests.chaos.business import TABLES, Handlers
from tests.chaos.children import Child, StartChild, start_child
from tests.fixtures.database import Database, MakeDatabase, install
from tests.worker.helpers import retimed

Rescue = Callable[..., Worker]


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    """The test's own database, with the business's tables."""
    return prepared(make_database(), installed=True)


def prepared(database: Database, *, installed: bool = False) -> Database:
    """Install the business, and fairqueue if it is not there."""
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.begin() as connection:
        if not installed:
            install(connection)
        for statement in TABLES.split(";"):
            connection.exec_driver_sql(statement)
    return database


@pytest.fixture
def books(database: Database, engine: Engine) -> Books:
    """What was sent, and what must have become of it."""
    queue = Queue("documents", max_attempts=100)
    queue.configure(engine, max_concurrency=3)
    queue.configure_channel(engine, "narrow", ChannelPolicy(max_concurrency=1))
    return Books(database, engine, queue)


@pytest.fixture
def child(database: Database, tmp_path: Path) -> Iterator[StartChild]:
    """Worker processes, killed after the test: ``child(stops=["taken"])``."""
    started: list[Child] = []

    def start(**asked: Any) -> Child:
        started.append(start_child(database.url, tmp_path, f"child-{len(started) + 1}", **asked))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def rescue(engine: Engine) -> Iterator[Rescue]:
    """A worker of the test's own process that would wait for an hour: only what it is told wakes it."""
    workers: list[Worker] = []

    def start(**options: Any) -> Worker:
        queue = Queue("documents")
        Handlers(engine, lambda *_: None).declare(queue)
        # Longer than a machine stalls: what is lost would be done again.
        defaults = {"lease": timedelta(minutes=1), "poll_interval": timedelta(hours=1), "housekeeping": False}
        timings = options.pop("timings", {})
        worker = retimed(Worker(options.pop("engine", engine), queue, **{**defaults, **options}), **timings)
        worker.start()
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.stop(timedelta())
