"""Workers and calls on engines whose listeners set connections up."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker, install_fairqueue
from tests.fixtures.database import Database, MakeDatabase
from tests.fixtures.drivers import async_url, sync_url

_SET = "set search_path to app"
_SET_LOCAL = "set local search_path to app"


def _on_connection(name: str) -> Callable[[Engine], None]:
    def listen(engine: Engine) -> None:
        @event.listens_for(engine, name)
        def set_up(connection: Any, *_: object) -> None:
            cursor = connection.cursor()
            cursor.execute(_SET)
            cursor.close()
            connection.commit()

    return listen


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


_OF_THE_POOL = {
    "connect": _on_connection("connect"),
    "checkout": _on_connection("checkout"),
    "do_connect": _on_do_connect,
}
_OF_AN_ENGINE = {
    "engine_connect": _executing("engine_connect", _SET),
    "engine_connect, local": _executing("engine_connect", _SET_LOCAL),
    "begin": _executing("begin", _SET),
    "begin, local": _executing("begin", _SET_LOCAL),
}


@pytest.fixture
def app(make_database: MakeDatabase) -> Database:
    """A database with two installations, which only the search_path tells apart: in public and in app."""
    database = make_database(schema="app")
    with database.own.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        install_fairqueue(connection, schema="public")
        connection.commit()
    return database


def _handled(name: str) -> Queue:
    queue = Queue(name)
    queue.handler()(lambda _: None)
    return queue


def test_an_engine(app: Database) -> None:
    """Calls on it and a worker's connections work where its sessions do, also if it is one with other options."""
    listeners = _OF_THE_POOL | _OF_AN_ENGINE
    with_options = ("connect", "engine_connect", "begin, local")
    for name, options in [(name, {}) for name in listeners] + [
        (name, {"stream_results": False}) for name in with_options
    ]:
        made = create_engine(sync_url(app.url))
        engine = made.execution_options(**options) if options else made
        # The pool is the first engine's.
        listeners[name](made if name in _OF_THE_POOL else engine)
        queue = _handled(f"{name}, {options}")
        queue.enqueue(engine, channel="a", payload=1)
        later = queue.enqueue(engine, channel="a", payload=2).message_id
        assert queue.cancel(engine, later).outcome == "cancelled"
        assert app.value("select count(*) from app.fq_message") == 1, queue
        worker = Worker(engine, queue)
        worker.run(drain=True)
        assert worker.stats.completed == 1, queue
        assert not install_fairqueue(engine)
        assert app.value("select count(*) from public.fq_lease") == 0, queue
        made.dispose()


@pytest.mark.whole
async def test_an_async_engine(app: Database) -> None:
    """The same for an AsyncEngine, whose sync engine has the listeners."""
    for name, listen in (_OF_THE_POOL | _OF_AN_ENGINE).items():
        engine = create_async_engine(async_url(app.url))
        listen(engine.sync_engine)
        queue = _handled(name)
        await queue.enqueue(engine, channel="a", payload=1)
        later = (await queue.enqueue(engine, channel="a", payload=2)).message_id
        assert (await queue.cancel(engine, later)).outcome == "cancelled"
        worker = AsyncWorker(engine, queue)
        await worker.run(drain=True)
        assert worker.stats.completed == 1, name
        assert app.value("select count(*) from public.fq_lease") == 0, name
        await engine.dispose()
