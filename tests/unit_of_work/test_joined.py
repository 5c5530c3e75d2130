"""Sessions in an external transaction: the work goes with the session's commit, and lives with the outer one's."""

from itertools import product
from typing import Literal

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.errors import LockOrderError
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken

Mode = Literal["conditional_savepoint", "rollback_only", "control_fully", "create_savepoint"]
MODES: list[Mode] = ["conditional_savepoint", "rollback_only", "control_fully", "create_savepoint"]


def test_commit_is_the_outer_ones(engine: Engine, database: Database) -> None:
    """In every mode the message is there once both the session and the outer transaction have committed; where the
    session does not control it, the outer transaction's rollback takes what the session committed.
    """
    for mode, in_savepoint, commits in product(MODES, (True, False), (True, False)):
        with engine.connect() as connection, connection.begin() as outer:
            if in_savepoint:
                connection.begin_nested()
            with Session(connection, join_transaction_mode=mode) as session:
                session.add(Upload(name="a"))
                QUEUE.enqueue(session, channel="alice", payload=1)
                session.commit()
            controlled = not outer.is_active
            if not controlled:
                assert channels(database) == []
                outer.commit() if commits else outer.rollback()
        assert taken(database) == ((["alice"], ["a"]) if controlled or commits else ([], [])), (mode, in_savepoint)
        assert in_savepoint or controlled is (mode == "control_fully")


def test_many_sessions_in_one_transaction(engine: Engine, database: Database) -> None:
    """Sessions that follow each other in one outer transaction may use the channels in any order, as test suites do."""
    with engine.connect() as connection, connection.begin():
        for channel in "cab":
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                QUEUE.enqueue(session, channel=channel, payload=1)
                session.commit()
                QUEUE.enqueue(session, channel=f"{channel} lost", payload=1)
                session.rollback()
                QUEUE.cancel(session, 10**9)
                session.commit()
        assert channels(database) == []
    assert channels(database) == ["c", "a", "b"]


def test_order_within_one_joined_session(engine: Engine) -> None:
    """Inside one transaction of a joined session the lock order holds as ever."""
    with engine.connect() as connection, connection.begin():
        session = Session(connection, join_transaction_mode="create_savepoint")
        QUEUE.enqueue(session.connection(), channel="b", payload=1)
        with pytest.raises(LockOrderError):
            QUEUE.enqueue(session.connection(), channel="a", payload=1)
        session.close()


async def test_async_joined(async_engine: AsyncEngine, database: Database) -> None:
    """An AsyncSession joined into an AsyncConnection's transaction does the same."""
    async with async_engine.connect() as connection, connection.begin():
        for channel in "ba":
            async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
                QUEUE.enqueue(session, channel=channel, payload=1)
                await session.commit()
        assert channels(database) == []
    assert channels(database) == ["b", "a"]
