"""Commands on an application's engine that is made with more than its URL says."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import CommandError
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import APP_VARIABLE, DATABASE_URL_VARIABLE, Options
from sqlalchemy_fairqueue.cli.spark import source_options
from sqlalchemy_fairqueue.dashboard.reading import Reading
from tests.cli.conftest import Cli, install_into, only
from tests.cli.test_target import url_of
from tests.fixtures.database import Database, MakeDatabase

_MODULE = """
from sqlalchemy import NullPool, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import Queue

queue = Queue("documents")
{engine}
"""
_ENGINES = {
    "psycopg": (
        "engine = create_engine({url!r}, poolclass=NullPool, connect_args={{'options': '-c search_path=app'}})"
    ),
    "psycopg async": "engine = create_async_engine({url!r}, connect_args={{'options': '-c search_path=app'}})",
    "asyncpg": (
        "engine = create_async_engine({asyncpg!r}, connect_args={{'server_settings': {{'search_path': 'app'}}}})"
    ),
    "a listener": """
engine = create_async_engine({asyncpg!r})
@event.listens_for(engine.sync_engine, "engine_connect")
def set_up(connection):
    connection.exec_driver_sql("set search_path to app")
""",
    "a listener of transactions": """
engine = create_async_engine({url!r})
@event.listens_for(engine.sync_engine, "begin")
def set_up(connection):
    connection.exec_driver_sql("set local search_path to app")
""",
    "a listener of connections": """
engine = create_async_engine({asyncpg!r})
@event.listens_for(engine.sync_engine, "connect")
def set_up(connection, record):
    connection.run_async(lambda own: own.execute("set search_path to app"))
""",
    "an async creator": """
import asyncpg
async def connect():
    return await asyncpg.connect({dsn!r}, server_settings={{"search_path": "app"}})
engine = create_async_engine("postgresql+asyncpg://nowhere.invalid/", async_creator=connect)
""",
}


@pytest.fixture
def two(make_database: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database with two installations, which only the search_path tells apart: in public and in app."""
    monkeypatch.delenv(DATABASE_URL_VARIABLE, raising=False)
    monkeypatch.delenv(APP_VARIABLE, raising=False)
    database = make_database(schema="app")
    install_into(database, "public")
    for schema in ("app", "public"):
        engine = create_engine(database.url, poolclass=NullPool)
        Queue("documents", schema=schema).enqueue(engine, channel="cust", payload=1)
    return database


@pytest.fixture
def application(two: Database, module: Callable[[str], str]) -> Callable[[str], str]:
    """Write a module with an engine of this kind; its name."""

    def write(kind: str) -> str:
        pytest.importorskip("asyncpg", reason="another driver")
        url = url_of(two)
        engine = _ENGINES[kind].format(url=url, asyncpg=url.replace("+psycopg", "+asyncpg"), dsn=two.conninfo)
        return module(_MODULE.format(engine=engine))

    return write


def _left(database: Database) -> dict[str, int]:
    return {schema: database.value(f"select count(*) from {schema}.fq_message") for schema in ("app", "public")}


def test_a_command(
    bare_cli: Cli, two: Database, application: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works on the installation that the engine finds, also where a variable names the database."""
    engine = create_engine(two.url, poolclass=NullPool)
    # The variable cannot name the database of an engine whose URL leads nowhere.
    for kind, variable in [("asyncpg", True), *((kind, False) for kind in _ENGINES)]:
        name = application(kind)
        if variable:
            monkeypatch.setenv(DATABASE_URL_VARIABLE, url_of(two))
        else:
            monkeypatch.delenv(DATABASE_URL_VARIABLE, raising=False)
        with only("version"):
            found = bare_cli("doctor", "--json", "--app", f"{name}:queue")
        assert found.document["schema"] == "app", found.err
        found = bare_cli("purge", "cust", "--yes", "--json", "--app", f"{name}:queue")
        assert found.status == 0, found.err
        assert _left(two) == {"app": 0, "public": 1}, kind
        Queue("documents", schema="app").enqueue(engine, channel="cust", payload=1)


def test_what_cannot_use_it(bare_cli: Cli, two: Database, application: Callable[[str], str]) -> None:
    """A command that cannot work with the engine refuses, and says which option helps."""
    for kind, words, complaint in (
        ("asyncpg", ("worker", "{}:queue", "--threads"), "--threads needs an Engine"),
        ("psycopg", ("worker", "{}:queue", "--async"), "an event loop needs an AsyncEngine"),
        ("asyncpg", ("report", "--app", "{}:queue", "--engine", "local", "--json"), "read by psycopg's COPY"),
    ):
        name = application(kind)
        found = bare_cli(*(word.format(name) for word in words))
        assert found.status == 2
        said = " ".join(found.err.split())
        assert complaint in said
        assert "--database-url" in said
    assert _left(two) == {"app": 1, "public": 1}


def test_spark(two: Database, application: Callable[[str], str], tmp_path: Any) -> None:
    """Its executors get the URL of the engine if that leads to the same place, and the schema that the engine finds."""
    with open_installation(Options(app=f"{application('asyncpg')}:queue", app_dir=str(tmp_path))) as installation:
        assert source_options(installation) == {"dsn": two.conninfo, "schema": "app"}
    with (
        pytest.raises(CommandError, match=r"executors connect by a URL, .* --database-url"),
        open_installation(
            Options(app=f"{application('an async creator')}:queue", app_dir=str(tmp_path))
        ) as installation,
    ):
        source_options(installation)


async def test_health_of_the_dashboard(two: Database) -> None:
    """Its findings are those of the installation that an AsyncEngine finds."""
    two.execute("drop function public.fq_version()")
    engine: AsyncEngine = create_async_engine(
        two.url, poolclass=NullPool, connect_args={"options": "-c search_path=app"}
    )
    reading = Reading(engine, [], schema=None, keep=timedelta(seconds=1))
    found = await asyncio.to_thread(reading._examine)
    assert found.problem is None
    assert found.findings
