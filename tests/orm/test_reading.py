"""Queries over the models: payloads, priorities, relationships, and times beside PostgreSQL's own."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import DateTime, Engine, Interval, TypeDecorator, case, func, literal, literal_column, select
from sqlalchemy.exc import DataError, StatementError
from sqlalchemy.orm import Session, selectinload

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.models import Channel, ChannelState, History, Lease, Message, QueueConfig, interval, timestamp
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


_HOUR = timedelta(hours=1)
_ZONED = DateTime(timezone=True)


class _Decorated(TypeDecorator[datetime]):
    """A type of the application's own over a timestamp."""

    impl = _ZONED
    cache_ok = True


_CONDITIONS: list[Any] = [
    Message.enqueued_at <= func.now(),
    Message.enqueued_at > func.now() - _HOUR,
    Message.enqueued_at.between(func.now() - _HOUR, func.now()),
    Message.due_at <= func.now(),
    Message.enqueued_at < func.date_trunc("hour", func.now(), type_=_ZONED) + _HOUR,
    Message.enqueued_at <= literal_column("now()", _Decorated),
    Message.enqueued_at > func.localtimestamp(type_=DateTime()) - _HOUR,
    Message.enqueued_at + _HOUR > func.now(),
    Message.enqueued_at - _HOUR < func.now(),
    Message.enqueued_at - func.now() <= timedelta(),
    Message.enqueued_at - func.now() > literal(-_HOUR, Interval),
    timestamp(Message.enqueued_at) <= func.now(),
    func.now() - timestamp(Message.enqueued_at) < _HOUR,
    Message.enqueued_at == Message.due_at,
    Message.enqueued_at.in_(select(Message.enqueued_at)),
    Message.enqueued_at.is_distinct_from(func.now() - _HOUR),
]


def test_conditions(engine: Engine) -> None:
    """A message that was just enqueued is found by each, and by none that is turned round."""
    with engine.begin() as connection:
        connection.exec_driver_sql("set time zone 'Asia/Kathmandu'")
        wanted = enqueue(connection, 1)
    # The transaction's now() is before the enqueue.
    with Session(engine) as session:
        session.connection().exec_driver_sql("set time zone 'Asia/Kathmandu'")
        for condition in _CONDITIONS:
            assert session.scalars(select(Message.id).where(condition)).all() == [wanted], str(condition)
            assert session.scalars(select(Message.id).where(~condition)).all() == [], str(condition)


def test_values(engine: Engine) -> None:
    """An instant less an instant is a timedelta, with a timedelta it is an instant, and a timestamp is the instant."""
    enqueue(engine, 1)
    now = datetime.now(UTC)
    with Session(engine) as session:
        at = session.scalars(select(Message.enqueued_at)).one()

        def value(expression: Any) -> Any:
            return session.scalar(select(expression))

        assert value(timestamp(Message.enqueued_at)) == at
        assert value(Message.enqueued_at + _HOUR) == at + _HOUR
        assert value(Message.enqueued_at - _HOUR) == at - _HOUR
        assert value(Message.enqueued_at - now) == at - now
        assert value(now - Message.enqueued_at) == now - at
        assert value(Message.enqueued_at - Message.enqueued_at) == timedelta()
        hour = at.replace(minute=0, second=0, microsecond=0)
        assert value(func.date_trunc("hour", timestamp(Message.enqueued_at))) == hour
        assert value(func.max(Message.enqueued_at)) == at
        with pytest.raises(StatementError, match="aware datetime"):
            value(Message.enqueued_at < 5)


def test_durations(engine: Engine, database: Database) -> None:
    """Durations are added up as timedeltas; as intervals PostgreSQL's functions take them."""
    for seconds in (1, 4):
        database.execute(
            "insert into fq_history (id, queue, channel_id, channel, message_id, kind, attempt, enqueued_at, ready_at, "
            "started_at, finished_at, outcome) select :n, 'documents', 1, 'a', 1, 'k', 1, t, t, t + :wait, t + :wait, "
            "'completed' from (select (extract(epoch from now()) * 1000000)::bigint as t) as clock",
            n=seconds,
            wait=seconds * 1_000_000,
        )
    with Session(engine) as session:
        assert session.scalar(select(func.sum(History.wait))) == timedelta(seconds=5)
        assert session.scalar(select(func.avg(interval(History.wait)))) == timedelta(seconds=2.5)
        assert session.scalar(select(func.max(History.wait))) == timedelta(seconds=4)
        longer = select(History.id).where(History.wait > literal(timedelta(seconds=2), Interval))
        assert session.scalars(longer).all() == [4]


def test_a_comparison_finds_the_index() -> None:
    """PostgreSQL's own times are turned into microseconds, not the column, so that its indexes serve."""
    said = str(select(Message.id).where(Message.enqueued_at < literal_column("x", _ZONED)))
    assert "WHERE fq_message.enqueued_at < CAST(EXTRACT(epoch FROM CAST(x AS" in said
