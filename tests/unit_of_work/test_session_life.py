"""Messages enqueued in a session share the fate of its transaction, whichever way it ends."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue.errors import UnsentWork
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken, uploads


def _enqueue(session: Session, channel: str = "alice") -> None:
    QUEUE.enqueue(session, channel=channel, payload=1)


def test_commit_keeps_both(engine: Engine, database: Database) -> None:
    """A commit makes the business row and the message exist together."""
    with Session(engine) as session:
        session.add(Upload(name="a"))
        _enqueue(session)
        assert channels(database) == []
        session.commit()
    assert (uploads(database), channels(database)) == (["a"], ["alice"])


def test_other_ends_keep_nothing(engine: Engine, database: Database) -> None:
    """Rollback, close, reset and invalidate leave neither, and the session works again afterwards."""
    for end in ("rollback", "close", "reset", "invalidate", "expunged"):
        with Session(engine) as session:
            session.add(Upload(name="lost"))
            _enqueue(session, "lost")
            session.flush()
            if end == "expunged":
                session.expunge_all()
                session.rollback()
            else:
                getattr(session, end)()
            _enqueue(session, "kept")
            session.commit()
        assert taken(database) == (["kept"], []), end


def test_exception_in_block(session_factory: sessionmaker[Session], database: Database) -> None:
    """An exception out of a begin block leaves nothing."""

    def work() -> None:
        with session_factory.begin() as session:
            session.add(Upload(name="lost"))
            _enqueue(session)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert (uploads(database), channels(database)) == ([], [])


def test_leaving_without_commit(engine: Engine, database: Database) -> None:
    """A session left without commit leaves nothing, not even for its next use."""
    session = Session(engine)
    with session:
        _enqueue(session)
    session.commit()
    assert channels(database) == []


def test_failed_flush(engine: Engine, database: Database) -> None:
    """A flush that fails in the commit takes the messages with it; after a rollback the session is as new."""
    database.execute("insert into upload (name) values ('a')")
    with Session(engine) as session:
        session.add(Upload(name="a"))
        _enqueue(session, "lost")
        with pytest.raises(IntegrityError):
            session.commit()
        with pytest.raises(UnsentWork, match="rolled the transaction back"):
            _enqueue(session, "refused")
        session.rollback()
        _enqueue(session, "kept")
        session.commit()
    assert channels(database) == ["kept"]


def test_begin_block_and_autobegin(engine: Engine, database: Database) -> None:
    """Enqueue begins a transaction where none is, and joins the one of a begin block."""
    with Session(engine) as session:
        _enqueue(session, "autobegin")
        assert session.in_transaction()
        session.commit()
        with session.begin():
            _enqueue(session, "block")
    assert channels(database) == ["autobegin", "block"]


def test_autobegin_disabled(engine: Engine, database: Database) -> None:
    """Without autobegin an enqueue outside of a transaction is refused, as any statement is."""
    with Session(engine, autobegin=False) as session:
        with pytest.raises(InvalidRequestError, match="autobegin is disabled"):
            _enqueue(session, "refused")
        with session.begin():
            _enqueue(session, "kept")
    assert channels(database) == ["kept"]


def test_several_transactions(engine: Engine, database: Database) -> None:
    """One session sends each transaction's messages with its own commit, none twice."""
    with Session(engine) as session:
        for number in range(5):
            _enqueue(session, f"channel {number}")
            if number % 2:
                session.rollback()
            else:
                session.commit()
        session.commit()
    assert channels(database) == ["channel 0", "channel 2", "channel 4"]


def test_nothing_is_sent_before_the_commit(engine: Engine, database: Database) -> None:
    """Flushes and queries send nothing and check out no connection for the queue's sake."""
    with Session(engine) as session:
        _enqueue(session)
        assert engine.pool.status().endswith("Current Checked out connections: 0")
        session.add(Upload(name="a"))
        session.flush()
        assert session.scalar(text("select count(*) from fq_message")) == 0
        session.commit()
    assert channels(database) == ["alice"]


def test_scoped_session(engine: Engine, database: Database) -> None:
    """A scoped_session is taken for the session behind it."""
    registry = scoped_session(sessionmaker(engine))
    QUEUE.enqueue(registry, channel="kept", payload=1)
    registry.commit()
    QUEUE.enqueue(registry, channel="lost", payload=1)
    registry.remove()
    assert channels(database) == ["kept"]


async def test_async_session(async_session_factory: async_sessionmaker[AsyncSession], database: Database) -> None:
    """On an AsyncSession the same plain call records, and the awaited commit sends."""
    async with async_session_factory() as session:
        session.add(Upload(name="a"))
        QUEUE.enqueue(session, channel="kept", payload=1)
        await session.commit()
        QUEUE.enqueue(session, channel="lost", payload=1)
        await session.rollback()
        async with session.begin_nested():
            QUEUE.enqueue(session, channel="nested", payload=1)
        await session.commit()
        QUEUE.enqueue(session, channel="lost", payload=1)
    assert channels(database) == ["kept", "nested"]


async def test_exception_in_async_block(
    async_session_factory: async_sessionmaker[AsyncSession], database: Database
) -> None:
    """An exception out of an asyncio begin block leaves nothing."""

    async def work() -> None:
        async with async_session_factory.begin() as session:
            QUEUE.enqueue(session, channel="lost", payload=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert channels(database) == []


async def test_async_scoped_session(
    async_session_factory: async_sessionmaker[AsyncSession], database: Database
) -> None:
    """An async_scoped_session is taken for the session behind it."""
    registry = async_scoped_session(async_session_factory, scopefunc=lambda: 1)
    QUEUE.enqueue(registry, channel="kept", payload=1)
    await registry.commit()
    await registry.remove()
    assert channels(database) == ["kept"]


def test_the_session_is_left_as_it_was(engine: Engine) -> None:
    """session.info and loaded objects are not touched: expire_on_commit decides, as without the queue."""
    for expire in (True, False):
        with Session(engine, expire_on_commit=expire) as session:
            upload = Upload(name=f"expire {expire}")
            session.add(upload)
            _enqueue(session)
            session.commit()
            assert session.info == {}
            assert ("name" not in upload.__dict__) is expire
