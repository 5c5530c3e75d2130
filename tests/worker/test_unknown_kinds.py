"""Messages of a kind that a worker has no handler for."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Delivery, Queue, RetryPolicy
from sqlalchemy_fairqueue.worker import handling
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import AT_ONCE, LATER, drained, is_empty, send, until


def test_a_rolling_deploy(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, clock: Clock, caplog: pytest.LogCaptureFixture, drain: MakeWorker
) -> None:
    """A message of a new kind that an old worker gets is left to the new ones, also if it may be tried only once.

    So says the message, the policy of its kind, or that of the worker.
    """
    old = Queue("documents")
    old.handler("before")(print)
    called: list[Delivery] = []
    queue.handler("new")(called.append)
    queue.handler("once", retry=RetryPolicy(max_attempts=1))(called.append)
    send(engine, queue, 1, kind="new", max_attempts=1)
    for kind in "new", "once":
        send(engine, queue, 1, kind=kind)
    drain(old, retry=replace(LATER, max_attempts=1))
    rows = database.rows("select attempts, error, dequeue_at - fq_now() > 3.5e9 as late from fq_message")
    assert list(map(tuple, rows)) == [(0, None, True)] * 3
    words = "is given back for later, uncounted: queue 'documents' has no handler for kind"
    said = [record.getMessage() for record in caplog.records]
    assert sorted(one.partition(words)[2].split()[0] for one in said) == ["'new'", "'new'", "'once'"]
    clock.advance(timedelta(hours=1))
    drained(engine, queue)
    assert [delivery.attempt for delivery in called] == [1] * 3
    assert is_empty(database)
    assert queue.dead_letters.list(engine) == []


def test_a_kind_that_nobody_knows(
    handled: Queue, engine: Engine, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """After a while its failures count, so that it ends as a dead letter that says why."""
    send(engine, Queue("documents"), 1, kind="unknown", max_attempts=2)
    worker = start(handled, retry=AT_ONCE)
    until(lambda: worker.stats.buried, "it is a dead letter")
    worker.stop()
    releases = handling.UNKNOWN_KIND_RELEASES
    assert (worker.stats.released, worker.stats.retried, worker.stats.buried) == (releases, 1, 1)
    [letter] = handled.dead_letters.list(engine)
    assert (letter.attempts, letter.reason) == (2, "attempts exhausted")
    assert "no handler for kind 'unknown'" in (letter.error or "")
    levels = [record.levelno for record in caplog.records]
    # The last one says that it is dead.
    assert levels[: releases + 2] == [logging.WARNING] * releases + [logging.ERROR] * 2
