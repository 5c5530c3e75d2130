"""Drivers that the queue does not work on are refused by the first call that can know it."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, make_url
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import Enqueue, InvalidArgument, Queue, Worker

_OTHERS = ["postgresql+pg8000", "postgresql+psycopg2cffi", "sqlite+pysqlite"]
_REMEDY = r"speaks {}; the queue needs create_engine\('postgresql\+psycopg://...'\) or .*psycopg2.* or .*asyncpg"
_RECORDING: list[Callable[[Queue, Session], Any]] = [
    lambda queue, session: queue.enqueue(session, channel="a", payload=1),
    lambda queue, session: queue.enqueue_many(session, [Enqueue(channel="a", payload=1)]),
    lambda queue, session: queue.cancel(session, 1),
    lambda queue, session: queue.pause(session, "a"),
]
_AT_ONCE: list[Callable[[Queue, Any], Any]] = [
    lambda queue, where: queue.enqueue(where, channel="a", payload=1).message_id,
    Queue.stats,
    Queue.channels,
    lambda queue, where: queue.dead_letters.list(where),
]


@pytest.fixture
def other(request: pytest.FixtureRequest) -> Engine:
    """An engine on another driver. The driver need not be installed: it is SQLAlchemy that knows its name."""
    url = make_url(f"{request.param}://")

    def connect() -> Any:
        pytest.fail("it was connected to")

    return Engine(NullPool(connect), url.get_dialect()(), url)


def _refused(name: str) -> Any:
    return pytest.raises(InvalidArgument, match=_REMEDY.format(name.replace("+", r"\+")))


@pytest.mark.parametrize("other", _OTHERS, indirect=True)
def test_sessions(queue: Queue, other: Engine, request: pytest.FixtureRequest) -> None:
    """A call that only records is refused at once, not at the commit, which goes on without it."""
    name = request.node.callspec.params["other"]
    for call in _RECORDING:
        with sessionmaker(other).begin() as session, _refused(name):
            call(queue, session)


@pytest.mark.parametrize("other", _OTHERS, indirect=True)
def test_engines(queue: Queue, other: Engine, request: pytest.FixtureRequest) -> None:
    """Every call on an engine, and a worker that is made, before anything is connected to."""
    name = request.node.callspec.params["other"]
    for call in _AT_ONCE:
        with _refused(name):
            call(queue, other)
    with _refused(name):
        queue.dequeue(other)
    with _refused(name):
        Worker(other, queue)
