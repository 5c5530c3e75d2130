"""What look-ups show of ordering keys."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.reports import MessageDetails, Reason
from tests.fixtures.database import Database

queue = Queue("documents")


def _send(engine: Engine, *keys: str | None, delay: timedelta | None = None) -> list[int]:
    messages = [Enqueue(channel="a", payload=1, ordering_key=key, delay=delay) for key in keys]
    return [receipt.message_id or 0 for receipt in queue.enqueue_many(engine, messages)]


def _message(engine: Engine, message_id: int) -> MessageDetails:
    found = queue.message(engine, message_id)
    assert found is not None
    return found


def _look(engine: Engine, message_id: int) -> tuple[str | None, str, int | None, Reason | None, int | None]:
    found = _message(engine, message_id)
    reason, behind = (found.wait.reason, found.wait.behind) if found.wait else (None, None)
    return found.ordering_key, found.state(datetime.now(UTC)), found.behind, reason, behind


def _in_state(engine: Engine, state: str, channel: str | None = "a") -> list[int]:
    ids, after = [], None
    while True:
        page = queue.messages(engine, channel=channel, state=state, limit=1, after=after)  # type: ignore[call-overload]
        ids += [one.message_id for one in page]
        assert all(one.state(datetime.now(UTC)) == state for one in page)
        after = page.next
        if after is None:
            return ids


@pytest.mark.parametrize("channel", ["a", None])
def test_a_message_is_held(engine: Engine, channel: str | None) -> None:
    """It is held from its enqueue on, before and after a dequeue has looked at it, until it goes first."""
    first, second, third, other, bare = _send(engine, "k", "k", "k", "l", None)
    [later] = _send(engine, "k", delay=timedelta(hours=1))
    assert _look(engine, third) == ("k", "held", first, Reason.ORDERING_KEY, first)
    assert (_in_state(engine, "held", channel), _in_state(engine, "ready", channel)) == (
        [second, third],
        [first, other, bare],
    )
    delivery, *others = queue.dequeue(engine, limit=10)
    assert [delivery.message_id, *(one.message_id for one in others)] == [first, other, bare]
    assert _look(engine, first) == ("k", "leased", None, None, None)
    assert _look(engine, second) == ("k", "held", first, Reason.ORDERING_KEY, first)
    assert _message(engine, second).due_at == _message(engine, second).enqueued_at
    assert _look(engine, later) == ("k", "scheduled", first, Reason.SCHEDULED, None)
    assert (_in_state(engine, "held", channel), _in_state(engine, "scheduled", channel)) == ([second, third], [later])
    assert _in_state(engine, "ready", channel) == []
    every = sorted([first, second, third, other, bare, later])
    assert sorted(one.message_id for one in queue.messages(engine, channel=channel)) == every
    queue.complete(engine, delivery)
    key, state, behind, reason, _ = _look(engine, second)
    assert (key, state, behind) == ("k", "ready", None)
    assert reason is not Reason.ORDERING_KEY
    assert _look(engine, third) == ("k", "held", second, Reason.ORDERING_KEY, second)
    assert (_in_state(engine, "held", channel), _in_state(engine, "ready", channel)) == ([third], [second])


def test_a_dead_letter_has_it(engine: Engine) -> None:
    """It is found with the letter."""
    _send(engine, "k", None)
    queue.bury(engine, queue.dequeue(engine, limit=2), reason="bad")
    assert sorted(letter.ordering_key or "" for letter in queue.dead_letters.list(engine)) == ["", "k"]


def test_members_of_a_group(engine: Engine, database: Database) -> None:
    """A member that waits behind another is held."""
    with Session(engine) as session:
        with queue.group(session) as group:
            group.enqueue_many([Enqueue(channel="a", payload=1, ordering_key="k") for _ in range(2)])
        session.commit()
    for _ in range(2):
        states = database.rows("select * from fq_group_members('documents', :id, 10) order by message_id", id=group.id)
        assert [row.state for row in states] == ["ready", "held"]
        queue.release(engine, queue.dequeue(engine, limit=2))
