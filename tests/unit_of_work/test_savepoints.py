"""Messages enqueued in a savepoint share the savepoint's fate."""

from itertools import product

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken


def _enqueue(session: Session | AsyncSession, channel: str) -> None:
    QUEUE.enqueue(session, channel=channel, payload=1)


def test_depths(engine: Engine, database: Database) -> None:
    """At every depth a message survives exactly if its savepoint and all those around it were released."""
    for fates in product((True, False), repeat=3):
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
        assert taken(database)[0] == [f"depth {depth}" for depth in [0, *survivors]], fates


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


def test_outer_commits_over_open_savepoints(engine: Engine, database: Database) -> None:
    """Savepoints left open at the commit are released by it, with everything they recorded."""
    for depth, by in product((1, 3), ("session", "transaction", "block")):
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
        assert taken(database)[0] == [f"depth {number}" for number in range(depth + 1)]


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
