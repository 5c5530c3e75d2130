"""Attempts of a message, and the points at which a worker sees that none is left."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Bury, Context, Delivery, Queue, Retry, RetryPolicy
from tests.fixtures.database import Database
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import AT_ONCE, drained, expire_leases, send, until

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
def test_death_is_said_and_counted(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, start: StartWorker, caplog: pytest.LogCaptureFixture, own: int, policy: RetryPolicy
) -> None:
    """Whichever limit ends a message, the log names it and says that it is dead, and it is counted as buried."""
    limits: list[tuple[int, int]] = []

    @queue.handler(retry=policy)
    def handle(delivery: Delivery, context: Context) -> None:
        limits.append((delivery.attempt, context.max_attempts))
        raise ValueError("odd")

    [message_id] = send(engine, queue, 1, max_attempts=own)
    worker = start(queue)
    until(lambda: worker.stats.buried, "it is a dead letter")
    worker.stop()
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
