"""The page about workers."""

import asyncio
import re
from pathlib import Path
from types import ModuleType

import pytest
import sqlalchemy
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Delivery, Queue, Worker
from sqlalchemy_fairqueue.values.messages import OnDuplicate
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import LISTENERS, auntil, is_empty, send, until

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "workers.md"


def _example(part: str) -> str:
    """The example of the page that contains this."""
    [found] = [one for one in re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL) if part in one]
    return str(found)


def test_the_example_runs(engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's worker runs as it stands, and its handlers do what they say."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    example = _example("worker = Worker(engine, queue, concurrency=8)")
    module = ModuleType("example")
    # Annotations are looked up in the module.
    exec(compile(example, str(_PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    queue: Queue = module.__dict__["queue"]
    send(engine, queue, {"upload": "a"}, kind="parse")
    send(engine, queue, {"pages": ["a"]}, kind="call")
    send(engine, queue, {"pages": ["busy"]}, kind="call")
    with module.__dict__["worker"] as worker:
        until(lambda: worker.stats.completed == 2 and worker.stats.retried == 1, "all have ended")
    assert not is_empty(database)


def test_the_middleware_example_runs(engine: Engine) -> None:
    """The page's middleware names the tenant to each transaction of a handler."""
    module = ModuleType("example")
    exec(compile(_example("@queue.middleware"), str(_PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    queue: Queue = module.__dict__["queue"]
    tenants = []

    @queue.handler
    def handle(_: Delivery, session: Session) -> None:
        tenants.append(session.scalar(text("select current_setting('app.tenant')")))

    @queue.handler("other")
    def without_session(_: Delivery) -> None:
        tenants.append(None)

    send(engine, queue, 1, 2, channel="customer-7")
    send(engine, queue, 3, kind="other", channel="customer-8")
    Worker(engine, queue, housekeeping=False).run(drain=True)
    assert sorted(map(str, tenants)) == ["None", "customer-7", "customer-7"]


def test_the_pooler_example_runs(engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's worker for a pooler works without a listening connection."""
    asked: dict[str, object] = {}

    def create_engine(_: str, **options: object) -> Engine:
        asked.update(options)
        return engine

    monkeypatch.setattr(sqlalchemy, "create_engine", create_engine)
    example = _example("listen=False")
    module = ModuleType("example")
    exec(compile(example, str(_PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    worker = module.__dict__["worker"]
    worker._options.queues[0].handler()(lambda _: None)
    with worker:
        send(engine, Queue("documents"), 1)
        until(lambda: is_empty(database), "it works")
        assert database.value(LISTENERS) == 0
    assert asked == {"connect_args": {"prepare_threshold": None}}


async def test_the_example_of_both_kinds_runs(
    engine: Engine, async_engine: AsyncEngine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's worker handles messages by a plain and by an async function, each with its session."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    monkeypatch.setattr("sqlalchemy.ext.asyncio.create_async_engine", lambda _: async_engine)
    module = ModuleType("example")
    example = _example("concurrency=8") + _example("sync_session_factory")
    exec(compile(example, str(_PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    for kind in "invoice", "ship":
        send(engine, module.__dict__["orders"], {"order": "7"}, kind=kind)
    serving = asyncio.create_task(module.__dict__["serve"]())
    await auntil(lambda: is_empty(database), "both are handled")
    serving.cancel()
    await asyncio.wait([serving])
    assert database.value("select count(*) from fq_dead_letter") == 0


@pytest.mark.parametrize(("on_duplicate", "links"), [("skip", 1), ("replace", 3)])
def test_what_is_said_of_keys(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, on_duplicate: OnDuplicate, links: int
) -> None:
    """A handler that enqueues itself anew under its own key goes on with replace only."""
    handled: list[int] = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        handled.append(delivery.payload)
        if delivery.payload < 3:
            queue.enqueue(session, channel="c", payload=delivery.payload + 1, key="chain", on_duplicate=on_duplicate)

    queue.enqueue(engine, channel="c", payload=1, key="chain")
    start(queue)
    until(lambda: is_empty(database), "the chain has ended")
    assert handled == list(range(1, links + 1))
