"""Attempts of a message: where none is left, and what is left to others, of a kind that a worker has no handler for."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Bury, Context, Delivery, Queue, Retry, RetryPolicy
from sqlalchemy_fairqueue.worker import handling
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.helpers import AT_ONCE, LATER, drained, expire_leases, is_empty, send, until

_ONCE = RetryPolicy(max_attempts=1)


@pytest.mark.parametrize("own", [False, True], ids=["worker's policy", "kind's policy"])
def test_attempts_without_a_word(
    queue: Queue, engine: Engine, database: Database, drain: MakeWorker, *, own: bool
) -> None:
    """A handler is not called beyond its policy's limit, whatever became of earlier attempts, and the letter tells."""
    called: list[int] = []
    queue.handler(retry=_ONCE if own else None)(lambda delivery: called.append(delivery.attempt))
    [first] = send(engine, queue, 1)
    for _ in range(2):
        _die_with_them(queue, engine, database)
    [second] = send(engine, queue, 1)
    _die_with_them(queue, engine, database)
    drain(queue, retry=None if own else _ONCE)
    assert not called
    reasons = {letter.message_id: letter.reason or "" for letter in queue.dead_letters.list(engine)}
    limit = "attempts exhausted: the limit is 1,"
    assert reasons[first].startswith(f"{limit} 3 had begun, and the last ended without")
    assert reasons[second].startswith(f"{limit} 1 had begun, and the last ended without")


def _die_with_them(queue: Queue, engine: Engine, database: Database) -> None:
    """Take all messages and let the leases end, as a process does that dies with them."""
    left = database.value("select count(*) from fq_message")
    until(lambda: len(queue.dequeue(engine, limit=9)) == left, "they are taken")
    expire_leases(database)


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition("kind default ")[2] for record in caplog.records]


@pytest.mark.parametrize(("own", "policy"), [(2, AT_ONCE), (20, replace(AT_ONCE, max_attempts=2))])
def test_death_is_said_and_counted(
    queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture, own: int, policy: RetryPolicy
) -> None:
    """Whichever limit ends a message, the log names it and says that it is dead, and it is counted as buried."""
    limits: list[tuple[int, int]] = []

    @queue.handler(retry=policy)
    def handle(delivery: Delivery, context: Context) -> None:
        limits.append((delivery.attempt, context.max_attempts))
        raise ValueError("odd")

    [message_id] = send(engine, queue, 1, max_attempts=own)
    worker = drained(engine, queue)
    assert limits == [(1, 2), (2, 2)]
    shown = f"{message_id} --queue {queue.name}"
    whose = "" if own == 2 else ": the policy's limit is 2"
    assert _said(caplog) == [
        f"failed at attempt 1 of 2: ValueError: odd; traceback: fairqueue messages show {shown}",
        f"failed at attempt 2 of 2: ValueError: odd; traceback: fairqueue dead show {shown}",
        f"is a dead letter now, at attempt 2 of 2: attempts exhausted{whose}",
    ]
    assert (worker.stats.retried, worker.stats.buried) == (1, 1)


def test_a_death_that_was_asked_for(queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A message that its handler buries, or wants again at its last attempt, is said to be dead as well."""
    outcomes = [Bury("no such customer"), Retry()]
    queue.handler()(lambda delivery, session: outcomes[delivery.payload])  # noqa: ARG005 - carried by the session
    send(engine, queue, 0, 1, max_attempts=1)
    worker = drained(engine, queue)
    reasons = [letter.reason for letter in queue.dead_letters.list(engine)]
    assert sorted(_said(caplog)) == sorted(f"is a dead letter now, at attempt 1 of 1: {reason}" for reason in reasons)
    assert (worker.stats.retried, worker.stats.buried) == (0, 2)


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


def test_a_kind_that_nobody_knows(handled: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """After a while its failures count, so that it ends as a dead letter that says why."""
    send(engine, Queue("documents"), 1, kind="unknown", max_attempts=2)
    worker = drained(engine, handled, retry=AT_ONCE)
    releases = handling.UNKNOWN_KIND_RELEASES
    assert (worker.stats.released, worker.stats.retried, worker.stats.buried) == (releases, 1, 1)
    [letter] = handled.dead_letters.list(engine)
    assert (letter.attempts, letter.reason) == (2, "attempts exhausted")
    assert "no handler for kind 'unknown'" in (letter.error or "")
    levels = [record.levelno for record in caplog.records]
    # The last one says that it is dead.
    assert levels[: releases + 2] == [logging.WARNING] * releases + [logging.ERROR] * 2
