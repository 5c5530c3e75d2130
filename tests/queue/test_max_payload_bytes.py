"""max_payload_bytes: a channel refuses payloads that are larger, however they are enqueued."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, PayloadError, Queue
from tests.fixtures.database import Database
from tests.sql.client import Kernel
from tests.sql.load.loads import load

# As JSON, 10 bytes and 11.
_FITS, _TOO_LARGE = "x" * 8, "x" * 9


def _in_a_session(queue: Queue, engine: Engine, payload: str) -> None:
    with Session(engine) as session, session.begin():
        queue.enqueue(session, channel="other", payload=_TOO_LARGE)
        queue.enqueue(session, channel="a", payload=payload)


_WAYS: dict[str, Callable[[Queue, Engine, str], object]] = {
    "plain": lambda queue, engine, payload: queue.enqueue(engine, channel="a", payload=payload),
    "with a key": lambda queue, engine, payload: queue.enqueue(engine, channel="a", payload=payload, key="k"),
    "later": lambda queue, engine, payload: queue.enqueue(
        engine, channel="a", payload=payload, delay=timedelta(1), priority=2
    ),
    "in a session": _in_a_session,
    "many": lambda queue, engine, payload: queue.enqueue_many(
        engine, [Enqueue(channel=name, payload=payload if name == "a" else _TOO_LARGE) for name in ("b", "a", "b")]
    ),
}


@pytest.mark.parametrize("way", _WAYS.values(), ids=_WAYS)
def test_a_larger_payload_is_refused(
    queue: Queue, engine: Engine, database: Database, way: Callable[[Queue, Engine, str], object]
) -> None:
    """A payload of as many bytes is enqueued, and a longer one is a PayloadError; nothing of its call is left."""
    queue.configure_channel(engine, "a", max_payload_bytes=10, on_full="drop")
    way(queue, engine, _FITS)
    kept = database.value("select count(*) from fq_message")
    with pytest.raises(PayloadError, match=r"channel a has 11 bytes; enqueue at most its max_payload_bytes, 10"):
        way(queue, engine, _TOO_LARGE)
    assert database.value("select count(*) from fq_message") == kept
    queue.configure_channel(engine, "a", max_payload_bytes=None)
    way(queue, engine, _TOO_LARGE)


def test_a_load_is_refused(queue: Queue, engine: Engine, database: Database) -> None:
    """A bulk load with one larger payload fails whole, with and without keys, and says which channel refuses it."""
    queue.configure_channel(engine, "a", max_payload_bytes=10)
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        kernel = Kernel(connection, queue.name)
        for keys in ([None, None], ["1", "2"]):
            with pytest.raises(psycopg.Error, match="channel a has 11 bytes") as refused:
                load(kernel, "b", "a", content=[b"x" * 11, b"x" * 11], key=keys)
            assert refused.value.sqlstate == "QF011"
            assert database.value("select count(*) from fq_message") == 0
        assert load(kernel, "b", "a", content=[b"x" * 11, b"x" * 10]).created == 2


def test_the_first_message_is_refused(queue: Queue, engine: Engine) -> None:
    """A channel that its first enqueue would make refuses that one, too."""
    bounded = Queue(queue.name, defaults=ChannelPolicy(max_payload_bytes=10))
    for key in ("k", None):
        with pytest.raises(PayloadError, match="channel new has 11 bytes"):
            bounded.enqueue(engine, channel="new", payload=_TOO_LARGE, key=key)
    with pytest.raises(PayloadError, match="channel new has 11 bytes"):
        bounded.enqueue_many(engine, [Enqueue(channel="new", payload=payload) for payload in (_FITS, _TOO_LARGE)])
    assert queue.channels(engine) == []
