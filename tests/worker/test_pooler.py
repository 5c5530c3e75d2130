"""Workers and producers behind a transaction pooler, with notifications off."""

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from sqlalchemy_fairqueue.embedded.server import Account
from tests.fixtures.database import Database
from tests.fixtures.drivers import ASYNC, SYNC
from tests.worker.helpers import AT_ONCE, LONG_LEASE, MANY_HEARTBEATS, auntil, is_empty, retimed, send, until

_CONNECTIONS = 4
"""Connections that the pooler keeps to the server."""
_PORT = 6432
# Everybody may come in: the folder is the account's alone, and the account is the server's.
_CONFIGURATION = """
[databases]
{name} = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr =
listen_port = {own_port}
unix_socket_dir = {folder}
pidfile = {folder}/pid
logfile = {folder}/log
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
"""


def _program() -> str | None:
    """Where PgBouncer is on this machine; Debian puts it where only administrators look."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


pytestmark = pytest.mark.skipif(
    _program() is None, reason="no program pgbouncer on this machine, and no wheel holds it"
)


def _listens(path: Path) -> bool:
    """Whether somebody accepts connections there: the path exists a moment before that."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


@contextlib.contextmanager
def _pooler(server: URL) -> Iterator[URL]:
    """Run one for the time of the block; the URL of the server's database through it."""
    found = _program()
    assert found is not None
    account = Account.for_server()
    # A socket's path must be short, whatever folder for temporary files the run has been given.
    with tempfile.TemporaryDirectory(prefix="fq", dir="/tmp") as directory:
        Path(directory).chmod(0o711)
        folder = Path(directory) / "pooler"
        account.make_folder(folder)
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            _CONFIGURATION.format(
                host=server.query.get("host") or server.host or "localhost",
                port=server.query.get("port") or server.port or 5432,
                user=server.username or "postgres",
                password=f" password='{server.password}'" if server.password else "",
                name=server.database,
                own_port=_PORT,
                folder=folder,
                connections=_CONNECTIONS,
            )
        )
        account.give(configuration)
        process = account.start([found, str(configuration)])
        try:
            until(lambda: process.poll() is not None or _listens(folder / f".s.PGSQL.{_PORT}"), "PgBouncer listens")
            assert process.poll() is None, (folder / "log").read_text()
            yield server.set(host=None, port=None, query={"host": str(folder), "port": str(_PORT)})
        finally:
            process.kill()
            process.communicate()


# PgBouncer before 1.21 knows nothing of prepared statements.
_UNPREPARED: dict[str, dict[str, Any]] = {
    "psycopg": {"prepare_threshold": None},
    "psycopg2": {},
    "asyncpg": {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: "",
    },
}
_OPTIONS: dict[str, Any] = {"listen": False, "poll_interval": timedelta(milliseconds=20), "retry": AT_ONCE}
_INSERT = text("insert into effect values (:id, pg_backend_pid())")


@pytest.fixture
def pooled(database: Database) -> Iterator[URL]:
    """The test's database through a pooler, and a business table in it."""
    database.execute("create table effect (message_id bigint, backend integer)")
    with _pooler(database.url) as url:
        yield url


def _check_effects(database: Database, number: int) -> None:
    """Each message had its effect once, over few connections: the pooler has few, and may replace some."""
    assert database.value("select count(*) from effect") == number
    assert database.value("select count(distinct message_id) from effect") == number
    assert database.value("select count(distinct backend) from effect") <= 3 * _CONNECTIONS < number


def _engine_arguments(url: URL, driver: str) -> tuple[URL, dict[str, Any]]:
    pytest.importorskip(driver)
    return url.set(drivername=f"postgresql+{driver}"), _UNPREPARED[driver]


@pytest.mark.parametrize("driver", [SYNC[0], *(pytest.param(one, marks=pytest.mark.whole) for one in SYNC[1:])])
def test_workers(queue: Queue, pooled: URL, database: Database, driver: str) -> None:
    """Three workers share four connections: all is done once, what fails included, and leases are kept."""
    url, arguments = _engine_arguments(pooled, driver)
    engine = create_engine(url, connect_args=arguments)
    go = threading.Event()

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        session.execute(_INSERT, {"id": delivery.message_id})
        if delivery.payload % 10 == 0 and delivery.attempt == 1:
            raise ValueError("after the write")

    @queue.handler("long")
    def long(_: Delivery) -> None:
        until(go.is_set, "it may end")

    # A heartbeat that comes so often has no patience with signals.
    timings = {**MANY_HEARTBEATS, "hear_after": 3600.0}
    workers = [retimed(Worker(engine, queue, concurrency=2, lease=LONG_LEASE, **_OPTIONS), **timings) for _ in range(3)]
    with contextlib.ExitStack() as running:
        for worker in workers:
            running.enter_context(worker)
        send(engine, queue, 1, kind="long", channel="long")
        send(engine, queue, *range(200))
        until(lambda: database.value("select count(*) from fq_message") == 1, "the short ones are done")
        beats = sum(worker.stats.heartbeats for worker in workers)
        until(lambda: sum(worker.stats.heartbeats for worker in workers) > beats + 1, "leases are extended")
        go.set()
        until(lambda: is_empty(database), "the long one is done")
    assert sum(worker.stats.lost for worker in workers) == 0
    assert sum(worker.stats.failures for worker in workers) == 0
    _check_effects(database, 200)
    engine.dispose()


@pytest.mark.parametrize("driver", [ASYNC[0], *(pytest.param(one, marks=pytest.mark.whole) for one in ASYNC[1:])])
async def test_an_async_worker(queue: Queue, pooled: URL, database: Database, driver: str) -> None:
    """The same in asyncio."""
    url, arguments = _engine_arguments(pooled, driver)
    engine = create_async_engine(url, connect_args=arguments, poolclass=NullPool)
    sender = create_engine(pooled, connect_args=_UNPREPARED["psycopg"])

    @queue.handler()
    async def handle(delivery: Delivery, session: AsyncSession) -> None:
        await session.execute(_INSERT, {"id": delivery.message_id})
        if delivery.payload % 10 == 0 and delivery.attempt == 1:
            raise ValueError("after the write")

    async with AsyncWorker(engine, queue, **_OPTIONS) as worker:
        send(sender, queue, *range(100))
        await auntil(lambda: is_empty(database), "all are done")
    assert worker.stats.failures == 0
    _check_effects(database, 100)
    await engine.dispose()
    sender.dispose()
