from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue, Worker
from sqlalchemy_fairqueue.worker import heartbeat

StartWorker = Callable[..., Worker]


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
