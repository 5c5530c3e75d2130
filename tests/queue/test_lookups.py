"""Messages that are not settled, found by their id and by their channel."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from tests.fixtures.database import Database
from tests.queue.damage import lose

queue = Queue("documents")


def _enqueue(engine: Engine, *payloads: object, **fields: Any) -> list[int]:
    with Session(engine) as session:
        receipts = [
            queue.enqueue(session, **{"channel": "customer-7", "payload": payload, **fields}) for payload in payloads
        ]
        session.commit()
    return [receipt.message_id or 0 for receipt in receipts]


def test_one_message(engine: Engine) -> None:
    """It is found with all that is known of it, until it is settled."""
    [message_id] = _enqueue(engine, {"text": "x" * 100_000}, kind="parse", key="k", headers={"trace": "t"})
    found = queue.message(engine, message_id)
    assert found is not None
    assert (found.channel, found.kind, found.key, found.headers) == ("customer-7", "parse", "k", '{"trace": "t"}')
    assert queue.codec.decode(found.content) == {"text": "x" * 100_000}
    assert (found.attempts, found.deliveries, found.state(datetime.now(UTC))) == (0, 0, "ready")
    [delivery] = queue.dequeue(engine)
    found = queue.message(engine, message_id)
    assert found is not None
    assert (found.consumer, found.state(datetime.now(UTC))) == (delivery.lease.consumer, "leased")
    queue.complete(engine, delivery)
    assert queue.message(engine, message_id) is None
    assert Queue("others").message(engine, message_id) is None


def test_a_scheduled_message(engine: Engine) -> None:
    """Its state depends on the time that is asked for."""
    [message_id] = _enqueue(engine, 1, delay=timedelta(hours=2))
    found = queue.message(engine, message_id)
    assert found is not None
    assert found.state(datetime.now(UTC)) == "scheduled"
    assert found.state(datetime.now(UTC) + timedelta(hours=3)) == "ready"


def test_the_messages_of_a_channel(engine: Engine) -> None:
    """Those that consumers hold come first, then the others in the order of their delivery."""
    later = _enqueue(engine, "later", delay=timedelta(hours=1))
    first, second, third = _enqueue(engine, 1, 2, 3)
    _enqueue(engine, "other", channel="other")
    urgent = _enqueue(engine, "urgent", priority=5)
    held = queue.dequeue(engine, limit=1)
    assert [one.message_id for one in held] == urgent
    found = [one.message_id for one in queue.messages(engine, channel="customer-7")]
    assert found == [*urgent, first, second, third, *later]
    assert len(queue.messages(engine, channel="nobody")) == 0
    every = [*urgent, first, second, third, *later]
    for limit in 1, 2, 5, 6:
        pages = _pages(engine, channel="customer-7", limit=limit)
        assert [one for page in pages for one in page] == every
        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert queue.messages(engine, channel="customer-7", limit=5).next is None


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
    first, second = _enqueue(engine, 1, 2)
    printed = _enqueue(engine, 3, kind="print", key="k")
    later = _enqueue(engine, 4, delay=timedelta(hours=1), kind="print")
    other = _enqueue(engine, 5, channel="b", key="k", kind="print")
    with Session(engine) as session, session.begin():
        Queue("others").enqueue(session, channel="customer-7", payload=1, kind="print")
    assert [one.message_id for one in queue.dequeue(engine, limit=2)] == [first, *other]
    for limit in 1, 2, 100:
        here = partial(_found, engine, limit=limit, channel="customer-7")
        assert here() == [first, second, *printed, *later]
        assert here(state="leased") == [first]
        assert here(state="ready") == [second, *printed]
        assert here(state="scheduled") == later
        assert here(kind="print") == [*printed, *later]
        assert here(kind="print", state="ready") == printed
        assert here(key="k") == printed
        assert here(key="k", state="leased") == here(key="k", kind="other") == here(key="none") == []
        assert _found(engine, channel="b", key="k") == other
        whole = partial(_found, engine, limit=limit)
        assert whole() == [first, second, *printed, *later, *other]
        assert whole(state="leased") == [first, *other]
        assert whole(state="ready") == [second, *printed]
        assert whole(state="scheduled") == later
        assert whole(kind="print") == [*printed, *later, *other]
        assert whole(kind="print", state="leased") == other


def test_a_bounded_page(engine: Engine) -> None:
    """A page reads so many messages at most, and says where the next one begins, also if it found nothing."""
    ids = _enqueue(engine, *range(10))
    [last] = _enqueue(engine, 1, kind="print")
    for asked in ({}, {"channel": "customer-7"}):
        pages = _pages(engine, kind="print", scan=4, **asked)
        assert pages == [[], [], [last]]
        assert _found(engine, scan=3, **asked) == [*ids, last]


def test_kinds_that_cannot_be_read(engine: Engine, database: Database) -> None:
    """A message whose kind cannot be read is found with no kind asked for, and of no kind; others are found as ever."""
    damaged = [1, 2, 5]
    ids = [_enqueue(engine, number, kind="print" if number % 3 else "parse")[0] for number in range(6)]
    assert [one.message_id for one in queue.dequeue(engine, limit=3)] == ids[:3]
    for number in damaged:
        lose(database, ids[number], "kind")
    printed = [ids[4]]
    for asked in ({}, {"channel": "customer-7"}):
        for limit, scan in ((1, 1), (1, 100), (100, 5)):
            find = partial(_found, engine, limit=limit, scan=scan, **asked)
            assert find() == ids
            assert find(kind="print") == find(kind="print", state="ready") == printed
            assert find(kind="parse", state="leased") == [ids[0]]
            assert find(kind="none") == []
    found = queue.message(engine, ids[5])
    assert found is not None
    assert found.unreadable is not None


def test_pages_while_the_queue_lives(engine: Engine) -> None:
    """A message that keeps its rank is on one page and no other, though others come, go, and are delivered."""
    ids = _enqueue(engine, *range(6))
    first = queue.messages(engine, channel="customer-7", limit=2)
    assert [one.message_id for one in first] == ids[:2]
    urgent = _enqueue(engine, "urgent", priority=1)
    with Session(engine) as session, session.begin():
        queue.cancel(session, ids[1])
        queue.cancel(session, ids[2])
    assert len(queue.dequeue(engine, limit=2)) == 2
    later = _enqueue(engine, "later")
    rest = _found(engine, channel="customer-7", limit=2, after=first.next)
    assert rest == [*ids[3:], *later]
    assert urgent[0] not in rest


def test_by_key_and_messages_ahead(engine: Engine) -> None:
    """A message is found by its channel and key, and says how many come before it."""
    held, first = _enqueue(engine, 1, 2)
    [second] = _enqueue(engine, 3, key="k")
    [urgent] = _enqueue(engine, 4, priority=1, key="u")
    found = queue.message(engine, channel="customer-7", key="k")
    assert found is not None
    assert (found.message_id, found.messages_ahead) == (second, 3)
    [delivery] = queue.dequeue(engine)
    assert delivery.message_id == urgent
    shown = [queue.message(engine, one) for one in (urgent, held, first, second)]
    assert [one and one.messages_ahead for one in shown] == [None, 0, 1, 2]
    assert queue.message(engine, channel="customer-7", key="none") is None
    assert queue.message(engine, channel="none", key="k") is None
    assert Queue("others").message(engine, channel="customer-7", key="k") is None
    _enqueue(engine, *range(1000))
    [beyond] = _enqueue(engine, 5)
    found = queue.message(engine, beyond)
    assert found is not None
    assert found.messages_ahead is None
