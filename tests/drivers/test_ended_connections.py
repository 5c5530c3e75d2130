"""Connections of ours that the server ended while they were idle are replaced before anybody hears of it."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from sqlalchemy_fairqueue.dashboard.reading import Reading
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.runtime import HealthCheck
from tests.drivers.faces import AsyncFace, Face
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits

_END = (
    "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
    " where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
)


def _worker(face: Face, queue: Queue) -> Worker | AsyncWorker:
    kind = AsyncWorker if isinstance(face, AsyncFace) else Worker
    return kind(face.engine, queue, listen=False, housekeeping=False)


def _pid(connection: Any) -> Any:
    return connection.scalar(text("select pg_backend_pid()"))


@pytest.mark.parametrize("how", ["an administrator", "idle_session_timeout"])
def test_a_dedicated_connection(face: Face, queue: Queue, database: Database, waits: Waits, how: str) -> None:
    """Each connection of a worker is there for the next call, which costs no second one while it is alive."""
    connection = DedicatedConnection(_worker(face, queue)._options)
    for number in range(1, 4):
        pid = connection.run(_pid)
        assert connection.run(_pid) == pid
        assert connection.made == number
        if how == "an administrator":
            database.execute("select pg_terminate_backend(:pid, 10000)", pid=pid)
        else:
            connection.run(lambda one: one.execute(text("set idle_session_timeout = 50")))
            waits.until("select 1 where not exists (select from pg_stat_activity where pid = :pid)", pid=pid)
    connection.close()


def test_a_listener(face: Face, queue: Queue) -> None:
    """A connection that listens is idle on purpose, and no such timeout ends it."""
    connection = DedicatedConnection(_worker(face, queue)._options)
    connection.run(lambda one: one.execute(text("set idle_session_timeout = 50")))
    listener = connection.listener()
    listener.listen("the listener")
    assert listener._execute("show idle_session_timeout") == ["0"]
    connection.close()


def _health(face: Face, queue: Queue, stack: ExitStack) -> Callable[[], bool]:
    check = HealthCheck(_worker(face, queue)._options)
    stack.callback(check.close)
    return lambda: not check.unanswered()


def _reading(face: Face, queue: Queue, _: ExitStack, *, way: str) -> Callable[[], bool]:
    reading = Reading(face.engine, [queue], schema=None, keep=timedelta())
    ways: dict[str, Callable[[], Any]] = {
        "figures": reading.figures.aget,
        "read": lambda: reading.read(_pid),
        "doctor": lambda: asyncio.to_thread(reading._examine),
    }

    async def ask() -> bool:
        found = await ways[way]()
        return getattr(found, "problem", None) is None

    if isinstance(face, AsyncFace):
        return lambda: face.runner.run(ask())
    return lambda: asyncio.run(ask())


_PROBES: dict[str, Callable[[Face, Queue, ExitStack], Callable[[], bool]]] = {
    "health": _health,
    **{way: partial(_reading, way=way) for way in ("figures", "read", "doctor")},
}


def test_who_reports(face: Face, queue: Queue, database: Database) -> None:
    """The health of a worker, the figures of metrics and the dashboard are there though all connections were ended."""
    for what, probe in _PROBES.items():
        with ExitStack() as stack:
            ask = probe(face, queue, stack)
            for _ in range(2):
                assert ask(), what
                database.execute(_END)
            assert ask(), what
