"""Servers that are away, and connections that stay open and are never answered."""

import asyncio
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from math import log2
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.timings import Timings
from tests.chaos.proxy import Proxy
from tests.fixtures.database import Database
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, auntil, call, is_empty, retimed, send, until, waiting

_OTHERS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"

# Workers that soon take silence for an end.
_IMPATIENT = {"stuck_after": 0.5, "hear_after": 0.2, "silence": 0.3, "answer": 0.3, "connect": 2.0}


@pytest.mark.parametrize("in_loop", [False, pytest.param(True, marks=pytest.mark.whole)])
async def test_an_idle_worker(
    handled: Queue, engine: Engine, database: Database, proxy: Proxy, *, in_loop: bool
) -> None:
    """A worker whose connections all fall silent makes new ones and goes on, woken by notifications."""
    options: Any = {"lease": timedelta(milliseconds=400), "poll_interval": timedelta(hours=1), "housekeeping": False}
    own: Any = create_async_engine(proxy.url) if in_loop else create_engine(proxy.url)
    worker = AsyncWorker(own, handled, **options) if in_loop else Worker(own, handled, **options)
    await call(retimed(worker, **_IMPATIENT).start)
    for _ in range(2):
        send(engine, handled, 1)
        await auntil(lambda: is_empty(database), "it works")
        await auntil(lambda: waiting(database), "it waits")
        proxy.fall_silent()
    await call(worker.stop)
    await call(own.dispose)


def test_a_stop_does_not_wait_for_it(queue: Queue, engine: Engine, proxy: Proxy) -> None:
    """What cannot be settled is left, whether a call is stuck or a connection is being made."""
    at_work, go_on = threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        at_work.set()
        go_on.wait()

    send(engine, queue, 1)
    own = create_engine(proxy.url)
    worker = retimed(Worker(own, queue, housekeeping=False), stop_settling=0.3, end_leases=0.1, leave_thread=0.1)
    worker.start()
    at_work.wait()
    proxy.fall_silent()
    go_on.set()
    began = monotonic()
    worker.stop()
    assert monotonic() - began < worker._options.timings.connect / 2
    own.dispose()


def _ask(connection: Connection) -> object:
    return connection.exec_driver_sql("select 1").scalar()


def _connection(engine: Engine | AsyncEngine, queue: Queue, connect: float = 30.0) -> DedicatedConnection:
    """A connection as a worker makes it, with so many seconds to be made."""
    worker = AsyncWorker(engine, queue) if isinstance(engine, AsyncEngine) else Worker(engine, queue)
    return DedicatedConnection(retimed(worker, connect=connect)._options)


@pytest.mark.parametrize("make_engine", [create_engine, create_async_engine])
def test_a_connection_that_is_being_made(queue: Queue, make_engine: Callable[[str], Engine | AsyncEngine]) -> None:
    """What takes a connection and never says a word is given up, and not only by the driver minutes later."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://u@127.0.0.1:{silent.getsockname()[1]}/d?sslmode=disable"
        own = _connection(make_engine(url), queue, connect=0.2)
        with pytest.raises(TimeoutError, match=r"has not answered a new connection for 0\.2 s; look whether"):
            own.run(_ask)
        own.close()


def test_those_that_were_given_up_are_not_counted(queue: Queue, database: Database) -> None:
    """However many attempts were left behind, the next one is made as soon as somebody answers."""
    hanging, go = [True], threading.Event()
    own = create_engine(database.url, pool_size=1, max_overflow=0, pool_timeout=0.01)

    @event.listens_for(own, "connect")
    def hang(*_: object) -> None:
        if hanging[0]:
            go.wait()

    patient, impatient = _connection(own, queue), _connection(own, queue, connect=0.05)
    # The first one of an engine's keeps others waiting by itself.
    hanging[0] = False
    assert patient.run(_ask) == 1
    patient.close()
    hanging[0] = True
    for _ in range(3):
        with pytest.raises(TimeoutError, match="has not answered"):
            impatient.run(_ask)
    hanging[0] = False
    assert patient.run(_ask) == 1
    go.set()
    until(lambda: database.value(_OTHERS) == 1, "those that came late are let go")
    patient.close()
    own.dispose()


async def test_a_timeout_of_somebody_else_is_not_ours(queue: Queue) -> None:
    """What the application's own listener raises is told as it is."""
    own = create_async_engine("postgresql+psycopg://u@127.0.0.1/d")

    @event.listens_for(own.sync_engine, "do_connect")
    def ask(*_: object) -> None:
        raise TimeoutError("the vault has not answered")

    def use() -> None:
        connection = _connection(own, queue)
        try:
            connection.run(_ask)
        finally:
            connection.close()

    with pytest.raises(TimeoutError, match="the vault"):
        await asyncio.to_thread(use)


# Dequeues, lookups of unanswered dequeues, settlements, heartbeats, signals, the listener; and the polls that the
# listener asks for when it fails.
_PARTS = 7
_MESSAGES = 50


def _most(seconds: float) -> float:
    """The most attempts in so many seconds: the wait of a part doubles each time, and a wait is halved at most."""
    shortest = Timings().backoff_first / 2
    return _PARTS * (2 + log2(seconds / shortest + 1))


def test_every_part_backs_off(
    queue: Queue, engine: Engine, database: Database, proxy: Proxy, seen: list[object]
) -> None:
    """A worker that loses its server while it is at work connects a few times a second, whatever finishes meanwhile.

    What it had in hand is completed when the server is back, once, and it goes on.
    """
    began, finished, away = list[int](), list[int](), threading.Event()

    @queue.handler("one after the other")
    def handle(delivery: Delivery) -> None:
        began.append(delivery.payload)
        away.wait()
        threading.Event().wait(delivery.payload / _MESSAGES)
        finished.append(delivery.payload)

    own = create_engine(proxy.url)
    worker = Worker(own, queue, lease=LONG_LEASE, concurrency=_MESSAGES + 1, housekeeping=False)
    with retimed(worker, **MANY_HEARTBEATS, hear_after=0.2, unanswered_after=0.1):
        send(engine, queue, *range(_MESSAGES), kind="one after the other")
        until(lambda: len(began) == _MESSAGES, "all are at work")
        began_at = monotonic()
        proxy.go_away()
        away.set()
        until(lambda: len(finished) == _MESSAGES, "all have finished")
        until(lambda: worker.stats.failures > 2 * _PARTS, "all parts have failed")
        assert proxy.refused <= _most(monotonic() - began_at)
        proxy.come_back()
        until(lambda: is_empty(database), "all are settled")
        send(engine, queue, 1)
        until(lambda: seen == [1], "it goes on")
    assert (len(began), worker.stats.lost) == (_MESSAGES, 0)
    own.dispose()
