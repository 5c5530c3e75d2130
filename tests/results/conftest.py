"""Fixtures of the tests of results."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Delivery, Queue

Out = Callable[..., Delivery]
HOUR = timedelta(hours=1)


@pytest.fixture
def queue(engine: Engine) -> Queue:
    """A queue that keeps results for an hour."""
    queue = Queue("documents", check_kinds=False)
    queue.configure(engine, result_retention=HOUR)
    return queue


@pytest.fixture
def out(engine: Engine, queue: Queue) -> Out:
    """Enqueue a message and take it: ``out(kind="parse", max_attempts=1)``."""

    def taken(**words: object) -> Delivery:
        queue.enqueue(engine, **{"channel": "a", "payload": 1, **words})  # type: ignore[call-overload]
        [delivery] = queue.dequeue(engine)
        return delivery

    return taken
