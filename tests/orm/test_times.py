"""Times of the models beside PostgreSQL's own: compared, subtracted, and given to its functions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import ColumnElement, DateTime, Engine, Interval, TypeDecorator, func, literal, literal_column, select
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.models import History, Message, interval, timestamp
from tests.fixtures.database import Database
from tests.orm.rows import enqueue

_HOUR = timedelta(hours=1)
_ZONED = DateTime(timezone=True)


class _Decorated(TypeDecorator[datetime]):
    """A type of the application's own over a timestamp."""

    impl = _ZONED
    cache_ok = True


_CONDITIONS: list[ColumnElement[bool]] = [
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
