"""Values of every kind go into the database and come back as they were."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, ChannelPolicy, Enqueue, InvalidArgument, Queue, Rate
from tests.drivers.faces import Face

# What array literals, drivers that put values into the text of a statement, and SQLAlchemy give a meaning of its own.
ODD = [
    "null", "NULL", "", " ", "a,b", "{a}", '"', "'", "''", "\\", "\\\\", "\\'", "%", "%s", "%(x)s", ":x", "::", "$1",
    "a\nb", "\t", "é", "日本", "\U0001f600", "--", "/*", "E'x'", "x\x01", "'; drop table fq_message; --",
]  # fmt: skip
_MONTH = timedelta(days=30)


def test_odd_texts(face: Face, queue: Queue) -> None:
    """Channels, kinds, keys, headers and payloads keep each character, alone and many at once."""
    names = [text for text in ODD if text]
    messages = [
        Enqueue(channel=name, payload=name, kind=name, key=name, headers={name: [name, None, True, 1.5, {"": name}]})
        for name in names
    ]
    for message in messages:
        face.run(partial(queue.enqueue_many, messages=[message]))
    alone = face.call(queue, "dequeue", limit=100)
    face.call(queue, "complete", alone)
    face.run(lambda session: queue.enqueue_many(session, messages))
    together = face.call(queue, "dequeue", limit=100)
    for batch in alone, together:
        found = {one.channel: (one.kind, one.payload, one.headers) for one in batch}
        assert found == {one.channel: (one.kind, one.payload, one.headers) for one in messages}
    assert {one.channel for one in face.call(queue, "channels")} == set(names)


def test_nothing(face: Face, queue: Queue) -> None:
    """What was not given is null, alone and beside what was given."""
    soon = datetime.now(UTC) - timedelta(hours=1)
    messages = [
        Enqueue(channel="a", payload=None),
        Enqueue(channel="a", payload=None, key="k", headers={}, delay=timedelta()),
        Enqueue(channel="a", payload=None, at=soon, max_attempts=3),
    ]
    for number in 1, 3:
        face.run(partial(queue.enqueue_many, messages=messages[:number]))
        found = face.call(queue, "dequeue", limit=10)
        assert [(one.headers, one.max_attempts) for one in found] == [(None, 20), ({}, 20), (None, 3)][:number]


def test_contents(face: Face) -> None:
    """Contents are bytes, of any value and length, in a delivery, a dead letter and after a redrive."""
    queue = Queue("raw", codec=BytesCodec())
    for size, number in (0, 1), (1, 2), (1_000_000, 1), (1_000_000, 2):
        content = bytes(range(256)) * (size // 256) + bytes(reversed(range(size % 256)))
        face.run(partial(queue.enqueue_many, messages=[Enqueue(channel="a", payload=content)] * number))
        found = face.call(queue, "dequeue", limit=5)
        assert [(type(one.content), one.content) for one in found] == [(bytes, content)] * number
        face.call(queue, "bury", found, reason="no \\ reason")
        letters = face.call(queue, "dead_letters.list")
        assert [(one.content, one.reason) for one in letters] == [(content, "no \\ reason")] * number
        assert len(face.call(queue, "dead_letters.redrive")) == number
        again = face.call(queue, "dequeue", limit=5)
        assert [one.content for one in again] == [content] * number
        face.call(queue, "complete", again)


def test_characters_that_postgresql_has_not(face: Face, queue: Queue) -> None:
    """They are refused by name before anything is sent, and the session goes on."""

    def work(session: Session) -> None:
        for text, field in product(("nul \x00", "lone \ud800"), ("channel", "kind", "key", "headers")):
            fields: dict[str, Any] = {"channel": "a", "payload": 1, field: {"x": text} if field == "headers" else text}
            with pytest.raises(InvalidArgument, match=field):
                queue.enqueue_many(session, [Enqueue(**fields)])
        queue.enqueue(session, channel="a", payload=1)

    face.run(work)
    assert len(face.call(queue, "dequeue", limit=5)) == 1


def test_policies(face: Face, queue: Queue) -> None:
    """Numbers, durations, rates and flags of a policy, and its absent fields."""
    policy = ChannelPolicy(weight=7, max_concurrency=3, rate=Rate(5, per=timedelta(seconds=2)), max_backlog=9)
    face.call(queue, "configure_channel", "a", policy=policy)
    face.call(queue, "configure_channel", "b", weight=2)
    found = {one.channel: one for one in face.call(queue, "channels")}
    assert (found["a"].weight, found["a"].max_concurrency, found["a"].rate) == (7, 3, policy.rate)
    assert (found["b"].max_concurrency, found["b"].rate, found["b"].paused_at) == (None, None, None)
    face.call(queue, "pause", "b")
    assert {one.channel: one.paused_at is not None for one in face.call(queue, "channels")} == {"a": False, "b": True}


def test_instants(face: Face, queue: Queue) -> None:
    """Times are aware, in UTC, and exact."""
    later = datetime.now(UTC) + _MONTH
    face.run(lambda session: queue.enqueue(session, channel="a", payload=1))
    face.run(lambda session: queue.enqueue(session, channel="a", payload=1, at=later))
    [one] = face.call(queue, "dequeue", limit=5)
    assert one.enqueued_at.utcoffset() == timedelta()
    assert abs(one.enqueued_at - datetime.now(UTC)) < timedelta(hours=1)
    until = face.call(queue, "extend", one, lease=_MONTH)
    assert abs(until - later) < timedelta(hours=1)
    assert face.call(queue, "stats").scheduled == 1
