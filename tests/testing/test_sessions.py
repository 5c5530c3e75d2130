"""Sessions that are rolled back, handlers that run inline, and the clock of a test's database."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import Context, Delivery, InvalidArgument, Queue, Retry
from sqlalchemy_fairqueue.testing import DatabaseClock, all_enqueued, assert_enqueued, drain, inline, rolled_back
from tests.fixtures.database import Database


async def test_rolled_back(engine: Engine, async_engine: AsyncEngine, queue: Queue, database: Database) -> None:
    """What is committed in the block is seen in it, and gone after it. The objects of an AsyncSession can be read after
    a commit.
    """
    with rolled_back(engine, expire_on_commit=False) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()
        assert_enqueued(session, queue, payload=1)
    async with rolled_back(async_engine) as async_session:
        queue.enqueue(async_session, channel="a", payload=1)
        await async_session.commit()
        assert not async_session.sync_session.expire_on_commit
        await assert_enqueued(async_session, queue, payload=1, count=1)
    assert database.value("select count(*) from fq_message") == 0


def test_inline(engine: Engine, queue: Queue, database: Database) -> None:
    """At each commit the handlers run, those of what handlers enqueue included; all of it is rolled back. The sessions
    of the test and of handlers are made by a sessionmaker, with the application's own class.
    """
    handled: list[object] = []

    class Own(Session):
        """As SQLModel's Session, which has more methods."""

    @queue.handler("split")
    def split(delivery: Delivery, session: Session) -> None:
        assert isinstance(session, Own)
        for part in delivery.payload:
            queue.enqueue(session, channel=delivery.channel, payload=part, kind="part")

    @queue.handler("part")
    def part(delivery: Delivery) -> None:
        handled.append(delivery.payload)

    made = sessionmaker(engine, class_=Own, autoflush=False)
    with rolled_back(engine, session_factory=made) as session:
        assert not session.autoflush
        with inline(session, queue, session_factory=made) as performed:
            queue.enqueue(session, channel="a", payload=[1, 2], kind="split")
            session.flush()
            assert performed == []
            session.commit()
            assert handled == [1, 2]
            assert [one.delivery.kind for one in performed] == ["split", "part", "part"]
            with session.begin():
                queue.enqueue(session, channel="a", payload=[3], kind="split")
            assert handled == [1, 2, 3]
            queue.enqueue(session, channel="a", payload=[4], kind="split")
            session.rollback()
        queue.enqueue(session, channel="a", payload=[5], kind="split")
        session.commit()
        assert handled == [1, 2, 3]
    assert database.value("select count(*) from fq_message") == 0


def test_inline_in_inline(engine: Engine, queue: Queue) -> None:
    """Each block performs its own queue at the same commit, the outer one first; after a failure none is left over."""
    other = Queue("other")
    handled: list[object] = []

    @queue.handler("note")
    @other.handler("note")
    def note(delivery: Delivery) -> None:
        if delivery.payload == "fail":
            raise LookupError(delivery.payload)
        handled.append((delivery.queue, delivery.payload))

    def enqueue(to: Queue, payload: object) -> None:
        to.enqueue(session, channel="a", payload=payload, kind="note")

    with rolled_back(engine) as session, inline(session, queue) as outer, inline(session, other) as inner:
        for each in (other, queue):
            enqueue(each, 1)
        session.commit()
        assert handled == [(queue.name, 1), ("other", 1)]
        assert (len(outer), len(inner)) == (1, 1)
        enqueue(other, 2)
        enqueue(queue, "fail")
        with pytest.raises(LookupError):
            session.commit()
        session.connection()
        session.rollback()
        assert len(handled) == 2, "a rollback performs nothing"


def test_a_failure_inline(engine: Engine, queue: Queue) -> None:
    """The commit raises what the handler raised, and the session can be used again."""

    @queue.handler
    def fail(delivery: Delivery, session: Session) -> None:
        session.execute(text("create table written ()"))
        raise LookupError(delivery.payload)

    with rolled_back(engine) as session, inline(session, queue):
        queue.enqueue(session, channel="a", payload="x")
        with pytest.raises(LookupError, match="x"):
            session.commit()
        assert session.scalar(text("select to_regclass('written')")) is None


def test_a_rollback_performs_nothing(engine: Engine, queue: Queue) -> None:
    """Also after a savepoint was released, what another session on the connection has committed stays."""
    handled: list[object] = []

    @queue.handler
    def handle(delivery: Delivery) -> None:
        handled.append(delivery.payload)

    with rolled_back(engine) as session, inline(session, queue):
        with Session(session.get_bind(), join_transaction_mode="create_savepoint") as other:
            queue.enqueue(other, channel="a", payload=1)
            other.commit()
        session.begin_nested().commit()
        session.rollback()
        assert handled == []
        session.connection()
        session.commit()
        assert handled == [1]


async def test_ainline(async_engine: AsyncEngine, queue: Queue, database: Database) -> None:
    """The same for an AsyncSession of the application's class, with async handlers and plain ones."""
    handled: list[object] = []

    class Own(AsyncSession):
        """As SQLModel's AsyncSession."""

    @queue.handler("split")
    async def split(delivery: Delivery, session: AsyncSession) -> None:
        assert isinstance(session, Own)
        if not delivery.payload:
            raise LookupError("no parts")
        for part in delivery.payload:
            await asyncio.sleep(0)
            queue.enqueue(session, channel=delivery.channel, payload=part, kind="part")

    @queue.handler("part")
    def part(delivery: Delivery) -> None:
        handled.append(delivery.payload)

    made = async_sessionmaker(async_engine, class_=Own)
    async with rolled_back(async_engine, session_factory=made) as session:
        assert session.sync_session.expire_on_commit
        async with inline(session, queue, session_factory=made) as performed:
            async with session.begin():
                queue.enqueue(session, channel="a", payload=[1, 2], kind="split")
            assert handled == [1, 2]
            assert [one.delivery.kind for one in performed] == ["split", "part", "part"]
            queue.enqueue(session, channel="a", payload=[], kind="split")
            with pytest.raises(LookupError, match="no parts"):
                await session.commit()
        queue.enqueue(session, channel="a", payload=[3], kind="split")
        await session.commit()
        assert handled == [1, 2]
    assert database.value("select count(*) from fq_message") == 0


def test_sessions_that_cannot_be_inline(engine: Engine, queue: Queue) -> None:
    """A session that commits for good is refused."""
    with Session(engine) as session, pytest.raises(InvalidArgument, match="make it with rolled_back"), inline(session):
        pass
    with pytest.raises(InvalidArgument, match="give the session"), inline(17, queue):  # type: ignore[arg-type]
        pass


def test_scheduled_and_retried(engine: Engine, queue: Queue) -> None:
    """The clock decides when what is scheduled or to be tried again is due, in a session that is rolled back too."""

    @queue.handler
    def handle(_: Delivery, context: Context) -> Retry | None:
        return Retry(delay=timedelta(hours=1)) if context.delivery.attempt == 1 else None

    clock = DatabaseClock(engine)
    with rolled_back(engine) as session:
        queue.enqueue(session, channel="a", payload=1, delay=timedelta(days=3))
        assert drain(session, queue) == []
        clock.advance(timedelta(days=3))
        assert [one.delivery.attempt for one in drain(session, queue)] == [1]
        assert drain(session, queue) == []
        clock.advance(timedelta(minutes=61))
        assert [one.delivery.attempt for one in drain(session, queue)] == [2]
        assert all_enqueued(session, queue) == []


def test_the_clock(engine: Engine, queue: Queue, database: Database) -> None:
    """It goes on running, moves forward alone, and shows the true time after a reset."""
    clock = DatabaseClock(engine)
    before = clock.now()
    clock.move_to(before + timedelta(days=400))
    assert timedelta(days=400) <= clock.now() - before < timedelta(days=401)
    queue.enqueue(engine, channel="a", payload=1)
    [delivery] = queue.dequeue(engine)
    assert delivery.enqueued_at > before + timedelta(days=399)
    # Another one in the same database is the same clock.
    assert DatabaseClock(engine, "public").now() - before > timedelta(days=399)
    clock.reset()
    assert clock.now() - datetime.now(UTC) < timedelta(hours=1)
    with pytest.raises(InvalidArgument, match="forward"):
        clock.advance(timedelta(seconds=-1))
    with pytest.raises(InvalidArgument, match="aware"):
        clock.move_to(datetime(2030, 1, 1))  # noqa: DTZ001 - that is refused
    database.execute("create schema other")
    with pytest.raises(InvalidArgument, match="installed 0 times in schema 'other'"):
        DatabaseClock(engine, "other")
