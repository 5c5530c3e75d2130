"""Connections that stay open and are never answered."""

import asyncio
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from tests.chaos.proxy import Proxy
from tests.fixtures.database import Database
from tests.worker.helpers import auntil, is_empty, retimed, send, until

_LEASE = timedelta(milliseconds=400)
_OTHERS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


# Workers that soon take silence for an end.
_IMPATIENT = {"stuck_after": 0.5, "hear_after": 0.2, "silence": 0.3, "answer": 0.3, "connect": 2.0}


def test_an_idle_worker(queue: Queue, engine: Engine, database: Database, proxy: Proxy) -> None:
    """A worker whose connections all fall silent makes new ones and goes on, woken by notifications."""
    queue.handler()(lambda _: None)
    own = create_engine(proxy.url)
    worker = Worker(own, queue, lease=_LEASE, poll_interval=timedelta(hours=1), housekeeping=False)
    with retimed(worker, **_IMPATIENT):
        for _ in range(2):
            send(engine, queue, 1)
            until(lambda: is_empty(database), "it works")
            until(lambda: database.value("select count(*) from fq_lease where waiting_until > fq_now()"), "it waits")
            proxy.fall_silent()
    own.dispose()


@pytest.mark.whole
async def test_an_async_worker(queue: Queue, engine: Engine, database: Database, proxy: Proxy) -> None:
    """An AsyncWorker notices as well."""

    @queue.handler()
    async def handle(_: Delivery) -> None: ...

    own = create_async_engine(proxy.url)
    async with retimed(AsyncWorker(own, queue, lease=_LEASE, housekeeping=False), **_IMPATIENT):
        for _ in range(2):
            send(engine, queue, 1)
            await auntil(lambda: is_empty(database), "it works")
            proxy.fall_silent()
    await own.dispose()


def test_a_stop_does_not_wait_for_it(queue: Queue, engine: Engine, proxy: Proxy) -> None:
    """What cannot be settled is left, whether a call is stuck or a connection is being made."""
    at_work, go_on = threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        at_work.set()
        go_on.wait()

    send(engine, queue, 1)
    own = create_engine(proxy.url)
    worker = retimed(Worker(own, queue, housekeeping=False), settle_at_stop=0.3, end_leases=0.1, leave_thread=0.1)
    worker.start()
    at_work.wait()
    proxy.fall_silent()
    go_on.set()
    began = monotonic()
    worker.stop()
    assert monotonic() - began < worker._options.timings.connect / 2
    own.dispose()


def _connection(engine: Engine | AsyncEngine, queue: Queue, connect: float = 30.0) -> DedicatedConnection:
    """A connection as a worker makes it, with so many seconds to be made."""
    if isinstance(engine, AsyncEngine):
        return DedicatedConnection(retimed(AsyncWorker(engine, queue), connect=connect)._options)
    return DedicatedConnection(retimed(Worker(engine, queue), connect=connect)._options)


@pytest.mark.parametrize("make_engine", [create_engine, create_async_engine])
def test_a_connection_that_is_being_made(queue: Queue, make_engine: Callable[[str], Engine | AsyncEngine]) -> None:
    """What takes a connection and never says a word is given up, and not only by the driver minutes later."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://u@127.0.0.1:{silent.getsockname()[1]}/d?sslmode=disable"
        own = _connection(make_engine(url), queue, connect=0.2)
        with pytest.raises(TimeoutError, match=r"has not answered a new connection for 0\.2 s; look whether"):
            own.run(lambda connection: connection.exec_driver_sql("select 1"))
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
    assert patient.run(lambda connection: connection.exec_driver_sql("select 1").scalar()) == 1
    patient.close()
    hanging[0] = True
    for _ in range(3):
        with pytest.raises(TimeoutError, match="has not answered"):
            impatient.run(lambda connection: connection.exec_driver_sql("select 1"))
    hanging[0] = False
    assert patient.run(lambda connection: connection.exec_driver_sql("select 1").scalar()) == 1
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
            connection.run(lambda connection: connection.exec_driver_sql("select 1"))
        finally:
            connection.close()

    with pytest.raises(TimeoutError, match="the vault"):
        await asyncio.to_thread(use)
