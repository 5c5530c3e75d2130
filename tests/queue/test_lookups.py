"""Messages that are not settled, found by their id and by their channel."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.reports import Reason
from tests.fixtures.database import Database
from tests.queue.damage import lose
from tests.queue.seeds import add, message

queue = Queue("documents")
_message = partial(message, queue)


def test_one_message(engine: Engine) -> None:
    """It is found with all that is known of it, until it is settled."""
    [message_id] = add(queue, engine, {"text": "x" * 100_000}, kind="parse", key="k", headers={"trace": "t"})
    found = _message(engine, message_id)
    assert (found.channel, found.kind, found.key, found.headers) == ("a", "parse", "k", '{"trace": "t"}')
    assert queue.codec.decode(found.content) == {"text": "x" * 100_000}
    assert (found.attempts, found.deliveries, found.state(datetime.now(UTC))) == (0, 0, "ready")
    [delivery] = queue.dequeue(engine)
    found = _message(engine, message_id)
    assert (found.consumer, found.state(datetime.now(UTC))) == (delivery.lease.consumer, "leased")
    queue.complete(engine, delivery)
    assert queue.message(engine, message_id) is None
    assert Queue("others").message(engine, message_id) is None


def test_a_scheduled_message(engine: Engine) -> None:
    """Its state depends on the time that is asked for."""
    [message_id] = add(queue, engine, 1, delay=timedelta(hours=2))
    found = _message(engine, message_id)
    assert found.state(datetime.now(UTC)) == "scheduled"
    assert found.state(datetime.now(UTC) + timedelta(hours=3)) == "ready"


def test_the_messages_of_a_channel(engine: Engine) -> None:
    """Those that consumers hold come first, then the others in the order of their delivery."""
    later = add(queue, engine, "later", delay=timedelta(hours=1))
    first, second, third = add(queue, engine, 1, 2, 3)
    add(queue, engine, "other", channel="other")
    urgent = add(queue, engine, "urgent", priority=5)
    held = queue.dequeue(engine, limit=1)
    assert [one.message_id for one in held] == urgent
    found = [one.message_id for one in queue.messages(engine, channel="a")]
    assert found == [*urgent, first, second, third, *later]
    assert len(queue.messages(engine, channel="nobody")) == 0
    every = [*urgent, first, second, third, *later]
    for limit in 1, 2, 5, 6:
        pages = _pages(engine, channel="a", limit=limit)
        assert [one for page in pages for one in page] == every
        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert queue.messages(engine, channel="a", limit=5).next is None


def _pages(engine: Engine, after: str | None = None, **asked: Any) -> list[list[int]]:
    """The ids of each page, until the last one."""
    pages = []
    while True:
        page = queue.messages(engine, after=after, **asked)
        pages.append([one.message_id for one in page])
        after = page.next
        if after is None:
            return pages


def _found(engine: Engine, **asked: Any) -> list[int]:
    return [one for page in _pages(engine, **asked) for one in page]


def test_filters(engine: Engine) -> None:
    """State, kind and key restrict the messages of a channel and of the queue, whatever the pages are."""
    first, second = add(queue, engine, 1, 2)
    printed = add(queue, engine, 3, kind="print", key="k")
    later = add(queue, engine, 4, delay=timedelta(hours=1), kind="print")
    other = add(queue, engine, 5, channel="b", key="k", kind="print")
    Queue("others").enqueue(engine, channel="a", payload=1, kind="print")
    assert [one.message_id for one in queue.dequeue(engine, limit=2)] == [first, *other]
    selections: list[tuple[dict[str, Any], list[int], list[int]]] = [
        ({}, [first, second, *printed, *later], other),
        ({"state": "leased"}, [first], other),
        ({"state": "ready"}, [second, *printed], []),
        ({"state": "scheduled"}, later, []),
        ({"kind": "print"}, [*printed, *later], other),
        ({"kind": "print", "state": "ready"}, printed, []),
        ({"kind": "print", "state": "leased"}, [], other),
    ]
    for limit in 1, 2, 100:
        here = partial(_found, engine, limit=limit, channel="a")
        for asked, found, elsewhere in selections:
            assert here(**asked) == found
            assert _found(engine, limit=limit, **asked) == [*found, *elsewhere]
        assert here(key="k") == printed
        assert here(key="k", state="leased") == here(key="k", kind="other") == here(key="none") == []
        assert _found(engine, channel="b", key="k") == other


def test_a_bounded_page(engine: Engine) -> None:
    """A page reads so many messages at most, and says where the next one begins, also if it found nothing."""
    ids = add(queue, engine, *range(10))
    [last] = add(queue, engine, 1, kind="print")
    for asked in ({}, {"channel": "a"}):
        pages = _pages(engine, kind="print", scan=4, **asked)
        assert pages == [[], [], [last]]
        assert _found(engine, scan=3, **asked) == [*ids, last]


def test_kinds_that_cannot_be_read(engine: Engine, database: Database) -> None:
    """A message whose kind cannot be read is found with no kind asked for, and of no kind; others are found as ever."""
    damaged = [1, 2, 5]
    ids = [add(queue, engine, number, kind="print" if number % 3 else "parse")[0] for number in range(6)]
    assert [one.message_id for one in queue.dequeue(engine, limit=3)] == ids[:3]
    for number in damaged:
        lose(database, ids[number], "kind")
    printed = [ids[4]]
    for asked in ({}, {"channel": "a"}):
        for limit, scan in ((1, 1), (1, 100), (100, 5)):
            find = partial(_found, engine, limit=limit, scan=scan, **asked)
            assert find() == ids
            assert find(kind="print") == find(kind="print", state="ready") == printed
            assert find(kind="parse", state="leased") == [ids[0]]
            assert find(kind="none") == []
    assert _message(engine, ids[5]).unreadable is not None


def test_pages_while_the_queue_lives(engine: Engine) -> None:
    """A message that keeps its rank is on one page and no other, though others come, go, and are delivered."""
    ids = add(queue, engine, *range(6))
    first = queue.messages(engine, channel="a", limit=2)
    assert [one.message_id for one in first] == ids[:2]
    urgent = add(queue, engine, "urgent", priority=1)
    for cancelled in ids[1:3]:
        queue.cancel(engine, cancelled)
    assert len(queue.dequeue(engine, limit=2)) == 2
    later = add(queue, engine, "later")
    rest = _found(engine, channel="a", limit=2, after=first.next)
    assert rest == [*ids[3:], *later]
    assert urgent[0] not in rest


def test_by_key_and_messages_ahead(engine: Engine) -> None:
    """A message is found by its channel and key, and says how many come before it."""
    held, first = add(queue, engine, 1, 2)
    [second] = add(queue, engine, 3, key="k")
    [urgent] = add(queue, engine, 4, priority=1, key="u")
    found = _message(engine, channel="a", key="k")
    assert (found.message_id, found.messages_ahead) == (second, 3)
    [delivery] = queue.dequeue(engine)
    assert delivery.message_id == urgent
    shown = [queue.message(engine, one) for one in (urgent, held, first, second)]
    assert [one and one.messages_ahead for one in shown] == [None, 0, 1, 2]
    assert queue.message(engine, channel="a", key="none") is None
    assert queue.message(engine, channel="none", key="k") is None
    assert Queue("others").message(engine, channel="a", key="k") is None
    add(queue, engine, *range(1000))
    [beyond] = add(queue, engine, 5)
    assert _message(engine, beyond).messages_ahead is None


def _look(engine: Engine, message_id: int) -> tuple[str | None, str, int | None, Reason | None, int | None]:
    found = _message(engine, message_id)
    reason, behind = (found.wait.reason, found.wait.behind) if found.wait else (None, None)
    return found.ordering_key, found.state(datetime.now(UTC)), found.behind, reason, behind


@pytest.mark.parametrize("channel", ["a", None])
def test_a_message_is_held(engine: Engine, channel: str | None) -> None:
    """It is held from its enqueue on, before and after a dequeue has looked at it, until it goes first."""
    found = partial(_found, engine, channel=channel, limit=1)
    first, second, third = add(queue, engine, 1, 2, 3, ordering_key="k")
    [other], [bare] = (add(queue, engine, 4, ordering_key=key) for key in ("l", None))
    [later] = add(queue, engine, 5, ordering_key="k", delay=timedelta(hours=1))
    assert _look(engine, third) == ("k", "held", first, Reason.ORDERING_KEY, first)
    assert (found(state="held"), found(state="ready")) == ([second, third], [first, other, bare])
    delivery, *others = queue.dequeue(engine, limit=10)
    assert [delivery.message_id, *(one.message_id for one in others)] == [first, other, bare]
    assert _look(engine, first) == ("k", "leased", None, None, None)
    assert _look(engine, second) == ("k", "held", first, Reason.ORDERING_KEY, first)
    assert _message(engine, second).due_at == _message(engine, second).enqueued_at
    assert _look(engine, later) == ("k", "scheduled", first, Reason.SCHEDULED, None)
    assert (found(state="held"), found(state="scheduled")) == ([second, third], [later])
    assert found(state="ready") == []
    every = sorted([first, second, third, other, bare, later])
    assert sorted(one.message_id for one in queue.messages(engine, channel=channel)) == every
    queue.complete(engine, delivery)
    assert _look(engine, second)[:3] == ("k", "ready", None)
    assert _look(engine, third) == ("k", "held", second, Reason.ORDERING_KEY, second)
    assert (found(state="held"), found(state="ready")) == ([third], [second])


def test_a_dead_letter_has_it(engine: Engine) -> None:
    """It is found with the letter."""
    for key in ("k", None):
        add(queue, engine, 1, ordering_key=key)
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
