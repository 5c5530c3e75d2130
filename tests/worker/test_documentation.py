"""The page about workers."""

import asyncio
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue
from sqlalchemy_fairqueue.values.messages import OnDuplicate
from tests.fixtures.database import Database
from tests.worker.helpers import LISTENERS, auntil, drained, example, is_empty, send, until


def _run(*parts: str) -> dict[str, Any]:
    """What the examples that contain these have defined, run as they stand."""
    names: dict[str, Any] = {"__name__": "example"}
    exec("".join(map(example, parts)), names)  # noqa: S102 - our own page
    return names


def test_the_example_runs(engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's worker runs as it stands, and its handlers do what they say."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    names = _run("worker = Worker(engine, queue, concurrency=8)")
    queue: Queue = names["queue"]
    send(engine, queue, {"upload": "a"}, kind="parse")
    send(engine, queue, {"pages": ["a"]}, {"pages": ["busy"]}, kind="call")
    with names["worker"] as worker:
        until(lambda: worker.stats.completed == 2 and worker.stats.retried == 1, "all have ended")
    assert not is_empty(database)


def test_the_middleware_example_runs(engine: Engine) -> None:
    """The page's middleware names the tenant to each transaction of a handler."""
    queue: Queue = _run("@queue.middleware")["queue"]
    tenants = []

    @queue.handler
    def handle(_: Delivery, session: Session) -> None:
        tenants.append(session.scalar(text("select current_setting('app.tenant')")))

    queue.handler("other")(lambda _: tenants.append(None))
    send(engine, queue, 1, 2, channel="customer-7")
    send(engine, queue, 3, kind="other", channel="customer-8")
    drained(engine, queue)
    assert sorted(map(str, tenants)) == ["None", "customer-7", "customer-7"]


def test_the_pooler_example_runs(engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's worker for a pooler works without a listening connection."""
    asked: dict[str, object] = {}

    def create_engine(_: str, **options: object) -> Engine:
        asked.update(options)
        return engine

    monkeypatch.setattr(sqlalchemy, "create_engine", create_engine)
    worker = _run("listen=False")["worker"]
    [queue] = worker._options.queues
    queue.handler()(lambda _: None)
    with worker:
        send(engine, queue, 1)
        until(lambda: is_empty(database), "it works")
        assert database.value(LISTENERS) == 0
    assert asked == {"connect_args": {"prepare_threshold": None}}


async def test_the_example_of_both_kinds_runs(
    engine: Engine, async_engine: AsyncEngine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's worker handles messages by a plain and by an async function, each with its session."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    monkeypatch.setattr("sqlalchemy.ext.asyncio.create_async_engine", lambda _: async_engine)
    names = _run("concurrency=8", "sync_session_factory")
    for kind in "invoice", "ship":
        send(engine, names["orders"], {"order": "7"}, kind=kind)
    serving = asyncio.create_task(names["serve"]())
    await auntil(lambda: is_empty(database), "both are handled")
    serving.cancel()
    await asyncio.wait([serving])
    assert database.value("select count(*) from fq_dead_letter") == 0


@pytest.mark.parametrize(("on_duplicate", "links"), [("skip", 1), ("replace", 3)])
def test_what_is_said_of_keys(queue: Queue, engine: Engine, on_duplicate: OnDuplicate, links: int) -> None:
    """A handler that enqueues itself anew under its own key goes on with replace only."""
    handled: list[int] = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        handled.append(delivery.payload)
        if delivery.payload < 3:
            queue.enqueue(session, channel="c", payload=delivery.payload + 1, key="chain", on_duplicate=on_duplicate)

    queue.enqueue(engine, channel="c", payload=1, key="chain")
    drained(engine, queue)
    assert handled == list(range(1, links + 1))
