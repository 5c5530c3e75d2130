"""Messages of a kind that a worker has no handler for."""

import asyncio
import logging
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.worker import handling
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import is_empty, send, until

_LATER = timedelta(hours=1)
_AT_ONCE = RetryPolicy(first=timedelta())


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "loop"])
async def test_a_rolling_deploy(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    async_engine: AsyncEngine,
    database: Database,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    *,
    in_loop: bool,
) -> None:
    """A message of a new kind that an old worker gets is left to the new ones, also if it may be tried only once.

    So says the message, the policy of its kind, or that of the worker.
    """
    old = Queue("documents")
    old.handler("before")(lambda _: None)
    called: list[Delivery] = []
    queue.handler("new")(called.append)
    queue.handler("once", retry=RetryPolicy(max_attempts=1))(called.append)
    send(engine, queue, 1, kind="new", max_attempts=1)
    send(engine, queue, 1, kind="new")
    send(engine, queue, 1, kind="once")
    policy = RetryPolicy(first=_LATER, cap=_LATER, jitter=0, max_attempts=1)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        if in_loop:
            await AsyncWorker(async_engine, old, retry=policy, housekeeping=False).run(drain=True)
        else:
            await asyncio.to_thread(Worker(engine, old, retry=policy, housekeeping=False).run, drain=True)
    rows = database.rows("select attempts, error, dequeue_at - fq_now() > 3.5e9 as late from fq_message")
    assert list(map(tuple, rows)) == [(0, None, True)] * 3
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    words = "is given back for later, uncounted: queue 'documents' has no handler for kind"
    assert all(f"{words} 'new'" in one or f"{words} 'once'" in one for one in said)
    clock.advance(_LATER)
    await asyncio.to_thread(Worker(engine, queue, housekeeping=False).run, drain=True)
    assert [delivery.attempt for delivery in called] == [1] * 3
    assert is_empty(database)
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
    assert (worker.stats.released, worker.stats.retried, worker.stats.buried) == (handling.UNKNOWN_KIND_RELEASES, 1, 1)
    [letter] = database.rows("select attempts, reason, error from fq_dead_letter")
    assert (letter.attempts, letter.reason) == (2, "attempts exhausted")
    assert "no handler for kind 'unknown'" in letter.error
    levels = [record.levelno for record in caplog.records]
    # The last one says that it is dead.
    assert (
        levels[: handling.UNKNOWN_KIND_RELEASES + 2]
        == [logging.WARNING] * handling.UNKNOWN_KIND_RELEASES + [logging.ERROR] * 2
    )
