"""Workers and calls on engines whose listeners set connections up."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker, install_fairqueue
from tests.fixtures.database import Database, MakeDatabase
from tests.fixtures.drivers import async_url, sync_url

_SET = "set search_path to app"
_SET_LOCAL = "set local search_path to app"


def _on_connect(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute(_SET)
        cursor.close()
        connection.commit()


def _on_checkout(engine: Engine) -> None:
    @event.listens_for(engine, "checkout")
    def set_up(connection: Any, *_: object) -> None:
        cursor = connection.cursor()
        cursor.execute(_SET)
        cursor.close()
        connection.commit()


def _on_do_connect(engine: Engine) -> None:
    @event.listens_for(engine, "do_connect")
    def set_up(_: object, __: object, ___: object, arguments: dict[str, Any]) -> None:
        if engine.dialect.driver == "asyncpg":
            arguments["server_settings"] = {"search_path": "app"}
        else:
            arguments["options"] = "-c search_path=app"


def _executing(name: str, statement: str) -> Callable[[Engine], None]:
    def listen(engine: Engine) -> None:
        @event.listens_for(engine, name)
        def set_up(connection: Connection) -> None:
            connection.exec_driver_sql(statement)

    return listen


_LISTENERS = {
    "connect": _on_connect,
    "checkout": _on_checkout,
    "do_connect": _on_do_connect,
    "engine_connect": _executing("engine_connect", _SET),
    "engine_connect, local": _executing("engine_connect", _SET_LOCAL),
    "begin": _executing("begin", _SET),
    "begin, local": _executing("begin", _SET_LOCAL),
}

pytestmark = pytest.mark.parametrize("listen", _LISTENERS.values(), ids=_LISTENERS)


@pytest.fixture
def app(make_database: MakeDatabase) -> Database:
    """A database with two installations, which only the search_path tells apart: in public and in app."""
    database = make_database(schema="app")
    with database.own.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        install_fairqueue(connection, schema="public")
        connection.commit()
    return database


@pytest.mark.parametrize("options", [{}, {"stream_results": False}], ids=["itself", "with options"])
def test_an_engine(app: Database, listen: Callable[[Engine], None], options: dict[str, Any]) -> None:
    """Calls on it and a worker's connections work where its sessions do, also if it is one with other options."""
    made = create_engine(sync_url(app.url))
    engine = made.execution_options(**options) if options else made
    # The pool is the first engine's.
    listen(made if listen in {_on_connect, _on_checkout, _on_do_connect} else engine)
    queue = Queue("documents")
    queue.handler()(lambda _: None)
    queue.enqueue_now(engine, channel="a", payload=1)
    later = queue.enqueue_now(engine, channel="a", payload=2)
    assert queue.cancel(engine, later).outcome == "cancelled"
    assert app.value("select count(*) from app.fq_message") == 1
    with Worker(engine, queue) as worker:
        assert worker.health().ready
    worker.run(drain=True)
    assert worker.stats.completed == 1
    assert not install_fairqueue(engine)
    assert app.value("select count(*) from public.fq_lease") == 0
    made.dispose()


async def test_an_async_engine(app: Database, listen: Callable[[Engine], None]) -> None:
    """The same for an AsyncEngine, whose sync engine has the listeners."""
    engine: AsyncEngine = create_async_engine(async_url(app.url))
    listen(engine.sync_engine)
    queue = Queue("documents")
    queue.handler()(lambda _: None)
    await queue.aenqueue_now(engine, channel="a", payload=1)
    later = await queue.aenqueue_now(engine, channel="a", payload=2)
    assert (await queue.acancel(engine, later)).outcome == "cancelled"
    worker = AsyncWorker(engine, queue)
    await worker.run(drain=True)
    assert worker.stats.completed == 1
    assert app.value("select count(*) from public.fq_lease") == 0
    await engine.dispose()
