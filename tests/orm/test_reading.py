"""Queries over the models: payloads, times, priorities and relationships."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, case, func, select
from sqlalchemy.exc import DataError, StatementError
from sqlalchemy.orm import Session, selectinload

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.models import Channel, ChannelState, Lease, Message, QueueConfig
from tests.fixtures.database import Database
from tests.orm.rows import enqueue


def test_payload_on_both_sides(engine: Engine) -> None:
    """A payload is read in Python and can be asked for in a query."""
    enqueue(engine, {"upload": {"key": "é:%"}, "pages": 3})
    wanted = enqueue(engine, {"upload": {"key": "b"}, "pages": 5})
    with Session(engine) as session:
        message = session.scalars(select(Message).where(Message.payload["upload"]["key"].astext == "b")).one()
        pages = session.scalar(select(func.sum(Message.payload["pages"].as_integer())))
    assert (message.id, message.payload, pages) == (wanted, {"upload": {"key": "b"}, "pages": 5}, 8)


def test_payload_that_is_not_json(engine: Engine) -> None:
    """Content of another codec is a PayloadError when it is read as JSON, and can be read as bytes."""
    enqueue(engine, b"\xff\x00")
    with Session(engine) as session:
        message = session.scalars(select(Message)).one()
        with pytest.raises(PayloadError, match="2 bytes are not JSON"):
            message.payload  # noqa: B018 - reading it is what fails
        assert message.content == b"\xff\x00"


def test_payload_beside_other_codecs(engine: Engine) -> None:
    """A case keeps PostgreSQL from reading what another queue's codec wrote, whichever condition it begins with."""
    wanted = enqueue(engine, {"upload": "a"}, channel="json")
    enqueue(engine, b"\xff", channel="bytes")
    upload = case((Channel.name == "json", Message.payload["upload"].astext))
    query = select(Message.id).join(Message.channel)
    with Session(engine) as session:
        assert session.scalars(query.where(upload == "a")).all() == [wanted]
        with pytest.raises(DataError, match="invalid byte sequence"):
            session.scalars(query.where(Message.payload["upload"].astext == "a", Channel.name == "json")).all()


def test_times_are_aware_datetimes(engine: Engine) -> None:
    """Instants come as aware datetimes, to the microsecond, and are compared with such."""
    before = datetime.now(UTC) - timedelta(hours=1)
    enqueue(engine, 1)
    with Session(engine) as session:
        message = session.scalars(select(Message).where(Message.enqueued_at > before, Message.due_at > before)).one()
        raw = session.scalar(select(Message.dequeue_at))
        assert session.scalar(select(Message.due_at)) == message.due_at
        assert session.scalar(select(Message.id).where(Message.enqueued_at == message.enqueued_at)) == message.id
    assert message.due_at is not None
    assert (message.due_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == raw
    assert message.enqueued_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), 17], ids=["naive", "number"])  # noqa: DTZ001 - that is the point
def test_times_are_compared_with_instants_only(engine: Engine, value: object) -> None:
    """A naive datetime or a number names no instant, and is refused before it is sent."""
    with Session(engine) as session, pytest.raises(StatementError, match="aware"):
        session.scalars(select(Message).where(Message.enqueued_at > value)).all()


def test_priority_or_due_time(engine: Engine) -> None:
    """A prioritised message that is due has no due time, an ordinary one has no priority, on both sides."""
    urgent, ordinary = enqueue(engine, 1, priority=5), enqueue(engine, 2)
    with Session(engine) as session:
        assert session.scalars(select(Message.id).where(Message.priority == 5)).all() == [urgent]
        assert session.scalars(select(Message.id).where(Message.due_at.is_not(None))).all() == [ordinary]
        found = {message.id: message for message in session.scalars(select(Message))}
    assert (found[urgent].priority, found[urgent].due_at, found[ordinary].priority) == (5, None, None)


def test_relationships(engine: Engine, database: Database) -> None:
    """From a message to its channel, lease and state, and back, without a foreign key anywhere."""
    defaults = '{"defaults": {"rate_interval": 1500000, "max_concurrency": 4}}'
    database.execute(f"select fq_set_queue('documents', '{defaults}')")
    first, second = enqueue(engine, 1), enqueue(engine, 2)
    enqueue(engine, 3, channel="bob")
    [delivery] = Queue("documents").dequeue(engine)
    with Session(engine) as session:
        named = select(Channel).where(Channel.name == "alice")
        alice = session.scalars(named.options(selectinload(Channel.messages))).one()
        assert sorted(message.id for message in alice.messages) == [first, second]
        assert isinstance(alice.state, ChannelState)
        assert (alice.state.channel, alice.state.current_concurrency) == (alice, 1)
        assert isinstance(alice.queue_config, QueueConfig)
        assert {channel.name for channel in alice.queue_config.channels} == {"alice", "bob"}
        assert alice.state.rate_interval == timedelta(seconds=1.5)
        assert (alice.queue_config.defaults or {})["rate_interval"] == 1_500_000

        held = session.scalars(
            select(Message).join(Message.lease).where(Lease.consumer == delivery.lease.consumer)
        ).one()
        assert (held.id, held.channel, held.lease.messages) == (delivery.message_id, alice, [held])
        assert held.lease.expires_at > held.enqueued_at
        unheld = session.get_one(Message, second if delivery.message_id == first else first)
        assert unheld.lease is None
        assert alice.dead_letters == []


def test_dead_letters(engine: Engine, database: Database) -> None:
    """A dead letter keeps the payload and knows its channel."""
    enqueue(engine, {"upload": "a"})
    database.execute(
        "with dead as (delete from fq_message returning *) "
        "insert into fq_dead_letter select id, 'documents', channel_id, kind, content, headers, key, "
        "enqueued_at, 3, 3, 3, 'tired', null, enqueued_at from dead"
    )
    with Session(engine) as session:
        channel = session.scalars(select(Channel)).one()
        (letter,) = channel.dead_letters
        assert (letter.payload, letter.reason, letter.channel) == ({"upload": "a"}, "tired", channel)
        assert letter.died_at == letter.enqueued_at
