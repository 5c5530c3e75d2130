"""Commands and workers of the command line on an application's engine of each driver."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from tests.cli.conftest import Cli, bare_cli, module
from tests.fixtures.database import Database

__all__ = ["bare_cli", "module"]

pytestmark = pytest.mark.many(1)
_APPLICATION = """
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import Queue

engine = {maker}({url!r})
queue = Queue("documents")

@queue.handler()
{define} handle(delivery):
    if delivery.payload == "bad":
        raise ValueError("it's 100% bad")
"""
_DRIVERS = [
    # Such applications have the query in their settings.
    ("asyncpg", {"prepared_statement_cache_size": "0"}, "create_async_engine", "async def"),
    ("psycopg2", {}, "create_engine", "def"),
]


@pytest.fixture(params=_DRIVERS, ids=lambda given: given[0])
def application(request: pytest.FixtureRequest, database: Database, module: Callable[[str], str]) -> str:
    """A module with an engine on a driver, a queue and a handler."""
    driver, query, maker, define = request.param
    pytest.importorskip(driver)
    url = database.url.set(drivername=f"postgresql+{driver}").update_query_dict(query)
    return module(_APPLICATION.format(maker=maker, url=url.render_as_string(hide_password=False), define=define))


def test_commands(application: str, bare_cli: Cli, engine: Engine, queue: Queue) -> None:
    """What is shown, changed and worked is the same as on psycopg; doctor can make all its checks."""

    def run(*words: str) -> dict[str, Any]:
        return dict(bare_cli(*words, "--json", "--app", f"{application}:engine").document)

    queue.enqueue(engine, channel="café", payload=1, headers={"x": 1})
    [delivery] = queue.dequeue(engine)
    queue.bury(engine, delivery, reason="bad")
    queue.enqueue(engine, channel="b", payload=2)
    assert run("stats")["queues"][0]["ready"] == 1
    assert {one["channel"] for one in run("channels")["channels"]} == {"café", "b"}
    assert len(run("dead", "list")["dead_letters"]) == 1
    findings = run("doctor")["findings"]
    assert [one["message"] for one in findings if "cannot" in one["message"]] == []
    assert {one["check"] for one in findings} >= {"server", "drift", "queues", "history", "dispatchers"}
    worked = bare_cli("worker", f"{application}:queue", "--drain", "--json").document
    assert worked["stats"]["completed"] == 1
