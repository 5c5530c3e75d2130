"""Every verb of a queue, on engines, sessions and connections."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, DuplicateMessage, Enqueue, Queue
from tests.drivers.faces import Face
from tests.fixtures.database import Database
from tests.unit_of_work.business import Upload, channels, uploads

SETTLING: dict[str, dict[str, Any]] = {
    "complete": {},
    "retry": {"delay": timedelta(), "error": "it's 100% \\wrong:"},
    "release": {"delay": timedelta(hours=1)},
    "bury": {"reason": "bad"},
}


def _filled(face: Face, queue: Queue, messages: int) -> list[Delivery]:
    face.run(lambda session: queue.enqueue_many(session, [Enqueue(channel="a", payload=n) for n in range(messages)]))
    return list(face.call(queue, "dequeue", limit=messages))


def test_enqueue(face: Face, queue: Queue, database: Database) -> None:
    """Business rows and messages are committed together, and the receipts know their ids."""

    def work(session: Session) -> Any:
        session.add(Upload(name="x"))
        return [queue.enqueue(session, channel=name, payload=1) for name in "ab"]

    first, second = face.run(work)
    assert (uploads(database), channels(database)) == (["x"], ["a", "b"])
    assert first.created
    assert second.message_id > first.message_id
    assert face.call(queue, "enqueue", channel="c", payload=1).message_id > second.message_id


def test_keys_with_a_period(face: Face, queue: Queue) -> None:
    """Alone and with others, recorded, at once and on a connection; a duplicate that raises fails the COMMIT."""
    words: dict[str, Any] = {"channel": "a", "key": "k", "unique_for": timedelta(hours=1)}
    first = face.run(lambda session: queue.enqueue(session, payload=1, unique_from="completion", **words))
    assert first.created
    face.call(queue, "complete", face.call(queue, "dequeue"))
    assert face.run(lambda session: queue.enqueue(session, payload=2, **words)).message_id == first.message_id
    assert face.call(queue, "enqueue", payload=3, **words).message_id == first.message_id
    messages = [Enqueue(payload=4, **words), Enqueue(channel="a", payload=5)]
    assert [one.outcome for one in face.call(queue, "enqueue_many", messages)] == ["duplicate", "created"]
    receipts = face.on_connection(lambda connection: queue.enqueue_many(connection, messages))
    assert [one.outcome for one in receipts] == ["duplicate", "created"]

    def refused(session: Session) -> Any:
        queue.enqueue(session, payload=6, on_duplicate="raise", **words)
        with pytest.raises(DuplicateMessage) as caught:
            session.commit()
        session.rollback()
        return caught.value.message_id

    assert face.run(refused) == first.message_id
    assert [one.payload for one in face.call(queue, "dequeue", limit=10)] == [5, 5]


def test_enqueue_many(face: Face, queue: Queue) -> None:
    """On an engine many are added at once, or none of them."""
    messages = [Enqueue(channel="a", payload=n, key=f"{n}", headers={"n": n}) for n in range(3)]
    assert [one.outcome for one in face.call(queue, "enqueue_many", messages)] == ["created"] * 3
    refused = Enqueue(channel="a", payload=3, key="0", on_duplicate="raise")
    with pytest.raises(DuplicateMessage):
        face.call(queue, "enqueue_many", [Enqueue(channel="a", payload=4), refused])
    receipts = face.on_connection(lambda connection: queue.enqueue_many(connection, messages[:2]))
    assert [one.outcome for one in receipts] == ["duplicate"] * 2
    assert [one.payload for one in face.call(queue, "dequeue", limit=10)] == [0, 1, 2]


def test_settle(face: Face) -> None:
    """Each verb settles one delivery, and several: at once on an engine and on a connection, and with a COMMIT."""
    for verb, words in SETTLING.items():
        queue = Queue(verb)
        first, second, *many = _filled(face, queue, 6)
        face.run(lambda session: getattr(queue, verb)(session, first, **words))  # noqa: B023 - called at once
        face.on_connection(lambda connection: getattr(queue, verb)(connection, second, **words))  # noqa: B023 - as above
        face.call(queue, verb, many[:1], **words)
        face.call(queue, verb, many[1:], **words)
        counts = face.call(queue, "stats")
        state = {"retry": "ready", "release": "scheduled", "bury": "dead"}.get(verb)
        found = {name: getattr(counts, name) for name in ("ready", "scheduled", "leased", "dead")}
        assert {name: number for name, number in found.items() if number} == ({state: 6} if state else {})


def test_other_verbs(face: Face, queue: Queue) -> None:
    """Cancels, purges, pauses, limits and lists."""
    first = face.call(queue, "enqueue", channel="a", payload=1).message_id
    face.call(queue, "enqueue", channel="b", payload=2)
    assert face.call(queue, "cancel", first) is not None
    assert face.call(queue, "purge", "b") is not None
    face.call(queue, "enqueue", channel="a", payload=3)
    face.call(queue, "configure", max_concurrency=1)
    face.call(queue, "pause")
    assert face.call(queue, "dequeue") == []
    face.call(queue, "resume")
    [held] = face.call(queue, "dequeue", limit=3)
    assert held.payload == 3
    face.call(queue, "bury", held)
    assert face.call(queue, "dead_letters.purge") == 1
    assert face.call(queue, "dead_letters.list") == []
