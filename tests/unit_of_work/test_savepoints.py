"""Messages enqueued in a savepoint share the savepoint's fate."""

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, uploads


def _enqueue(session: Session | AsyncSession, channel: str) -> None:
    QUEUE.enqueue(session, channel=channel, payload=1)


def test_released_and_rolled_back(engine: Engine, database: Database) -> None:
    """What a rolled back savepoint recorded is gone, what a released one did stays, also around them."""
    with Session(engine) as session:
        _enqueue(session, "a")
        with session.begin_nested():
            _enqueue(session, "b")
        with session.begin_nested() as savepoint:
            session.add(Upload(name="lost"))
            _enqueue(session, "lost")
            savepoint.rollback()
        _enqueue(session, "c")
        session.commit()
    assert (channels(database), uploads(database)) == (["a", "b", "c"], [])


@pytest.mark.parametrize("fates", [(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False)])
def test_depths(engine: Engine, database: Database, fates: tuple[bool, ...]) -> None:
    """At every depth a message survives exactly if its savepoint and all those around it were released."""
    with Session(engine) as session:
        _enqueue(session, "depth 0")
        savepoints = []
        for depth in range(1, 4):
            savepoints.append(session.begin_nested())
            _enqueue(session, f"depth {depth}")
        for savepoint, kept in zip(reversed(savepoints), reversed(fates), strict=True):
            if kept:
                savepoint.commit()
            else:
                savepoint.rollback()
        session.commit()
    survivors = [depth for depth in range(1, 4) if all(fates[:depth])]
    assert channels(database) == [f"depth {depth}" for depth in [0, *survivors]]


def test_exception_out_of_a_savepoint(engine: Engine, database: Database) -> None:
    """An exception that leaves a savepoint's block takes its messages, and the transaction goes on."""
    with Session(engine) as session, session.begin():
        _enqueue(session, "kept")

        def work() -> None:
            with session.begin_nested():
                _enqueue(session, "lost")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
    assert channels(database) == ["kept"]


def test_outer_rolled_back_over_open_savepoints(engine: Engine, database: Database) -> None:
    """A rollback of the outermost transaction takes what its open savepoints recorded."""
    with Session(engine) as session:
        session.begin_nested()
        _enqueue(session, "lost")
        session.begin_nested()
        _enqueue(session, "lost too")
        session.rollback()
        session.commit()
    assert channels(database) == []


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("by", ["session", "transaction", "block"])
def test_outer_commits_over_open_savepoints(engine: Engine, database: Database, depth: int, by: str) -> None:
    """Savepoints left open at the commit are released by it, with everything they recorded."""
    with Session(engine) as session:
        with session.begin() as transaction:
            _enqueue(session, "depth 0")
            for number in range(1, depth + 1):
                session.begin_nested()
                _enqueue(session, f"depth {number}")
            if by == "session":
                session.commit()
            elif by == "transaction":
                transaction.commit()
        assert not session.in_transaction()
    assert channels(database) == [f"depth {number}" for number in range(depth + 1)]


def test_middle_savepoint_commits_over_an_open_one(engine: Engine, database: Database) -> None:
    """A savepoint released while an inner one is open releases both, and sends nothing yet."""
    with Session(engine) as session:
        outer = session.begin_nested()
        session.begin_nested()
        _enqueue(session, "inner")
        outer.commit()
        assert not session.in_nested_transaction()
        assert channels(database) == []
        session.commit()
    assert channels(database) == ["inner"]


def test_two_phase_commit_over_open_savepoints(engine: Engine, database: Database) -> None:
    """prepare() over an open savepoint sends what it recorded."""
    with Session(engine, twophase=True) as session:
        transaction = session.begin()
        session.begin_nested()
        _enqueue(session, "inner")
        transaction.prepare()
        transaction.commit()
    assert channels(database) == ["inner"]


def test_failed_flush_in_a_savepoint(engine: Engine, database: Database) -> None:
    """A flush that fails in a savepoint takes that savepoint's messages only."""
    database.execute("insert into upload (name) values ('a')")
    with Session(engine) as session:
        _enqueue(session, "kept")
        savepoint = session.begin_nested()
        _enqueue(session, "lost")
        session.add(Upload(name="a"))
        with pytest.raises(IntegrityError):
            session.flush()
        savepoint.rollback()
        _enqueue(session, "kept too")
        session.commit()
    assert channels(database) == ["kept", "kept too"]


async def test_async_savepoints(async_session_factory: async_sessionmaker[AsyncSession], database: Database) -> None:
    """On an AsyncSession savepoints decide in the same way."""
    async with async_session_factory.begin() as session:
        async with session.begin_nested():
            _enqueue(session, "kept")
        async with session.begin_nested() as savepoint:
            _enqueue(session, "lost")
            await savepoint.rollback()
    assert channels(database) == ["kept"]
