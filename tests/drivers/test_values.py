"""Values of every kind go into the database and come back as they were; row ids are sent, and a settlement does without
them; array literals say the same as the lists that they are made of.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, ChannelPolicy, Enqueue, InvalidArgument, Queue, Rate
from sqlalchemy_fairqueue.database.calls import Clause
from sqlalchemy_fairqueue.database.drivers import driver_of
from sqlalchemy_fairqueue.database.drivers.base import LITERALS
from tests.drivers.faces import Face
from tests.drivers.test_verbs import SETTLING
from tests.fixtures.database import Database

# What array literals, drivers that put values into the text of a statement, and SQLAlchemy give a meaning of its own.
ODD = [
    "null", "NULL", "", " ", "a,b", "{a}", '"', "'", "''", "\\", "\\\\", "\\'", "%", "%s", "%(x)s", ":x", "::", "$1",
    "a\nb", "\t", "é", "日本", "\U0001f600", "--", "/*", "E'x'", "x\x01", "'; drop table fq_message; --",
]  # fmt: skip
_MONTH = timedelta(days=30)


def test_odd_texts(face: Face, queue: Queue) -> None:
    """Channels, kinds, keys, headers and payloads keep each character, alone and many at once."""
    names = [one for one in ODD if one]
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
        for odd, field in product(("nul \x00", "lone \ud800"), ("channel", "kind", "key", "headers")):
            fields: dict[str, Any] = {"channel": "a", "payload": 1, field: {"x": odd} if field == "headers" else odd}
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


_ROWS = ["(0,1)", "(7,65535)", "(4294967295,1)"]


def _answer(face: Face, database: Database, type_: str, value: Any) -> str:
    """What the server reads in a parameter of this type."""
    database.execute(f"create or replace function told(p {type_}) returns text language sql return cast(p as text)")
    clause = Clause(text(f"select cast(told as text) from told(cast(:p as {type_}))"), {"p": type_})

    def ask(connection: Connection) -> Any:
        return connection.execute(clause.statement, clause.encoded(driver_of(connection), {"p": value})).scalar_one()

    return str(face.on_connection(ask))


def test_row_ids_arrive(face: Face, database: Database) -> None:
    """Alone and in an array the server reads each row id as it is."""
    assert [_answer(face, database, "tid", row) for row in _ROWS] == _ROWS
    assert _answer(face, database, "tid[]", _ROWS) == "{" + ",".join(f'"{row}"' for row in _ROWS) + "}"


def test_a_wrong_row_id_settles_its_own_message(face: Face) -> None:
    """A row id is only where the server looks first: the message's own id decides, also if another one stands there."""
    for verb, settled in product(SETTLING, (1, 3)):
        queue = Queue(f"{verb} {settled}")
        messages = [Enqueue(channel="a", payload=number) for number in range(2 * settled)]
        face.call(queue, "enqueue_many", messages)
        taken = face.call(queue, "dequeue", limit=2 * settled)
        wrong = [replace(one, row_id=other.row_id) for one, other in zip(taken[:settled], taken[settled:], strict=True)]
        face.call(queue, verb, wrong, **SETTLING[verb])
        assert face.call(queue, "stats").leased == settled
        face.call(queue, "complete", taken[settled:])
        assert face.call(queue, "stats").leased == 0


_TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text[]": st.none() | _TEXTS | st.sampled_from(["null", "NULL", "", " ", '"', "\\", "{}", "a,b"]),
    "bytea[]": st.binary(max_size=50),
    "bigint[]": st.none() | st.integers(-(2**63), 2**63 - 1),
    "tid[]": st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)).map(lambda one: f"({one[0]},{one[1]})"),
}


@pytest.mark.parametrize("type_", _VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data())
def test_literals(database: Database, type_: str, data: st.DataObject) -> None:
    """PostgreSQL reads a literal as the values that it was made of, in their order, nulls included."""
    values = data.draw(st.lists(_VALUES[type_], min_size=1, max_size=8))
    element = {"tid[]": "cast(one as text)"}.get(type_, "one")
    with database.own.connect() as connection:
        found = connection.scalars(
            text(f"select {element} from unnest(cast(:literal as {type_})) with ordinality u (one, n) order by n"),
            {"literal": LITERALS[type_](values)},
        ).all()
    assert list(found) == values


def test_contents_are_not_shown() -> None:
    """The parameter shows the length of each content, whose hexadecimal digits it has."""
    assert repr(LITERALS["bytea[]"]([b"secret", b"", bytes(2000)])) == "[<6 bytes>, <0 bytes>, <2,000 bytes>]"
