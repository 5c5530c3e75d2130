"""Messages of a kind that a worker has no handler for."""

import asyncio
import logging
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, RetryPolicy
from sqlalchemy_fairqueue.worker import decisions
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.drivers import async_url
from tests.worker.conftest import StartWorker
from tests.worker.helpers import auntil, is_empty, send, until

_LATER = timedelta(hours=1)
_AT_ONCE = RetryPolicy(first=timedelta())


@pytest.mark.parametrize("where", ["threads", "loop"])
@pytest.mark.parametrize("whose", ["message", "kind", "worker"])
def test_a_rolling_deploy(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    clock: Clock,
    start: StartWorker,
    caplog: pytest.LogCaptureFixture,
    where: str,
    whose: str,
) -> None:
    """A message of a new kind that an old worker gets is left to the new ones, also if it may be tried only once."""
    old = Queue("documents")
    old.handler("before")(lambda _: None)
    called: list[Delivery] = []
    once = RetryPolicy(max_attempts=1)
    queue.handler("new", retry=once if whose == "kind" else None)(called.append)
    send(engine, queue, 1, kind="new", **({"max_attempts": 1} if whose == "message" else {}))
    policy = RetryPolicy(first=_LATER, cap=_LATER, jitter=0, max_attempts=1 if whose == "worker" else None)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        if where == "threads":
            worker = start(old, retry=policy)
            until(lambda: worker.stats.released == 1, "it is given back")
            worker.stop()
        else:

            async def work() -> None:
                async with AsyncWorker(create_async_engine(async_url(engine.url)), old, retry=policy) as worker:
                    await auntil(lambda: worker.stats.released == 1, "it is given back")

            asyncio.run(work())
    [message] = database.rows("select attempts, error, dequeue_at - fq_now() as later from fq_message")
    assert (message.attempts, message.error) == (0, None)
    assert message.later > 3_500_000_000
    [said] = [record.getMessage() for record in caplog.records]
    assert "kind new is given back for later, uncounted: queue 'documents' has no handler for kind 'new'" in said
    clock.advance(_LATER)
    start(queue)
    until(lambda: is_empty(database), "it is done")
    assert [delivery.attempt for delivery in called] == [1]
    assert database.value("select count(*) from fq_dead_letter") == 0


def test_a_kind_that_nobody_knows(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """After a while its failures count, so that it ends as a dead letter that says why."""
    queue.handler("known")(lambda _: None)
    send(engine, Queue("documents"), 1, kind="unknown", max_attempts=2)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        worker = start(queue, retry=_AT_ONCE)
        until(lambda: is_empty(database), "it is a dead letter")
        worker.stop()
    assert (worker.stats.released, worker.stats.retried, worker.stats.buried) == (decisions.UNKNOWN_KIND_RELEASES, 1, 1)
    [letter] = database.rows("select attempts, reason, error from fq_dead_letter")
    assert (letter.attempts, letter.reason) == (2, "attempts exhausted")
    assert "no handler for kind 'unknown'" in letter.error
    levels = [record.levelno for record in caplog.records]
    # The last one says that it is dead.
    assert (
        levels[: decisions.UNKNOWN_KIND_RELEASES + 2]
        == [logging.WARNING] * decisions.UNKNOWN_KIND_RELEASES + [logging.ERROR] * 2
    )
