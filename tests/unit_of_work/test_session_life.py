"""Messages enqueued in a session share the fate of its transaction, whichever way it ends."""

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue.errors import UnsentWork
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken


def _enqueue(
    session: Session | AsyncSession | scoped_session[Session] | async_scoped_session[AsyncSession],
    channel: str = "alice",
) -> None:
    QUEUE.enqueue(session, channel=channel, payload=1)


def test_commit_keeps_both(engine: Engine, database: Database) -> None:
    """Flushes and queries send nothing and check out no connection for the queue's sake; a commit makes the business
    row and the message exist together.
    """
    with Session(engine) as session:
        _enqueue(session)
        assert engine.pool.status().endswith("Current Checked out connections: 0")
        session.add(Upload(name="a"))
        session.flush()
        assert session.scalar(text("select count(*) from fq_message")) == 0
        session.commit()
    assert taken(database) == (["alice"], ["a"])


def test_other_ends_keep_nothing(engine: Engine, database: Database) -> None:
    """Rollback, close, reset and invalidate leave neither; the session works again afterwards, and sends none twice."""
    with Session(engine) as session:
        for end in ("rollback", "close", "reset", "invalidate", "expunge_all"):
            session.add(Upload(name="lost"))
            _enqueue(session, "lost")
            session.flush()
            getattr(session, end)()
            if end == "expunge_all":
                session.rollback()
            _enqueue(session, "kept")
            session.commit()
            assert taken(database) == (["kept"], []), end


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


def test_autobegin(engine: Engine, database: Database) -> None:
    """Enqueue begins a transaction where none is, and joins that of a begin block; without autobegin it is refused
    outside of one, as any statement is.
    """
    with Session(engine) as session:
        _enqueue(session, "autobegin")
        assert session.in_transaction()
        session.commit()
    with Session(engine, autobegin=False) as session:
        with pytest.raises(InvalidRequestError, match="autobegin is disabled"):
            _enqueue(session, "refused")
        with session.begin():
            _enqueue(session, "block")
    assert channels(database) == ["autobegin", "block"]


def test_scoped_session(engine: Engine, database: Database) -> None:
    """A scoped_session is taken for the session behind it."""
    registry = scoped_session(sessionmaker(engine))
    _enqueue(registry, "kept")
    registry.commit()
    _enqueue(registry, "lost")
    registry.remove()
    assert channels(database) == ["kept"]


async def test_async_session(async_session_factory: async_sessionmaker[AsyncSession], database: Database) -> None:
    """On an AsyncSession, or behind an async_scoped_session, the same plain call records, and the awaited commit sends,
    what a hook of the session adds, too; savepoints decide in the same way.
    """
    async with async_session_factory() as session:
        session.add(Upload(name="a"))
        _enqueue(session, "kept")
        await session.commit()
        _enqueue(session, "lost")
        await session.rollback()
        async with session.begin_nested():
            _enqueue(session, "nested")
        async with session.begin_nested() as savepoint:
            _enqueue(session, "lost")
            await savepoint.rollback()
        event.listen(session.sync_session, "before_commit", lambda one: _enqueue(one, "of a hook"), once=True)
        await session.commit()
        _enqueue(session, "lost")
    registry = async_scoped_session(async_session_factory, scopefunc=lambda: 1)
    _enqueue(registry, "scoped")
    await registry.commit()
    await registry.remove()
    assert taken(database) == (["kept", "nested", "of a hook", "scoped"], ["a"])


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
