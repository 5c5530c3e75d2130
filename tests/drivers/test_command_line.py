"""Commands and workers of the command line on an application's engine of each driver."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from tests.fixtures.database import Database

pytestmark = pytest.mark.many(1)
_APPLICATION = """
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import Queue

engine = {maker}({url!r})
queue = Queue("documents")

@queue.handler()
{prefix}def handle(delivery):
    if delivery.payload == "bad":
        raise ValueError("it's 100% bad")
"""
_MAKERS = {"psycopg2": "create_engine", "asyncpg": "create_async_engine"}


@pytest.fixture(params=_MAKERS)
def application(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Path:
    """A module with an engine on a driver, a queue and a handler; its folder."""
    driver = request.param
    pytest.importorskip(driver)
    url = database.url.set(drivername=f"postgresql+{driver}")
    if driver == "asyncpg":
        # As such applications have it in their settings.
        url = url.update_query_dict({"prepared_statement_cache_size": "0"})
    text = _APPLICATION.format(
        maker=_MAKERS[driver],
        url=url.render_as_string(hide_password=False),
        prefix="async " if driver == "asyncpg" else "",
    )
    (tmp_path / "application.py").write_text(text)
    return tmp_path


def _run(folder: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "sqlalchemy_fairqueue.cli", *words, "--json"],
        check=False,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("FAIRQUEUE")},
        cwd=folder,
    )
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(done.stdout)


def test_commands(application: Path, engine: Engine, queue: Queue) -> None:
    """What is shown and changed is the same as on psycopg; doctor can make all its checks."""
    app = ("--app", "application:engine")
    queue.enqueue_now(engine, channel="café", payload=1, headers={"x": 1})
    [delivery] = queue.dequeue(engine)
    queue.bury(engine, delivery, reason="bad")
    queue.enqueue_now(engine, channel="b", payload=2)
    assert _run(application, "stats", *app)["queues"][0]["ready"] == 1
    assert {one["channel"] for one in _run(application, "channels", *app)["channels"]} == {"café", "b"}
    assert len(_run(application, "dead", "list", *app)["dead_letters"]) == 1
    findings = _run(application, "doctor", *app)["findings"]
    assert [one["message"] for one in findings if "cannot" in one["message"]] == []
    assert {one["check"] for one in findings} >= {"server", "drift", "queues", "history", "gates"}


def test_a_worker(application: Path, engine: Engine, queue: Queue) -> None:
    """A worker drains the queue over the application's own engine, in threads or in an event loop."""
    with engine.connect() as connection:
        for n in range(5):
            queue.enqueue_now(connection, channel="a", payload=n)
        connection.commit()
    found = _run(application, "worker", "application:queue", "--drain")
    assert found["stats"]["completed"] == 5
