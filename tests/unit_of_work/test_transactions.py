"""Savepoints, two phases, and transactions of others that a session joins: messages share the fate of each."""

from contextlib import suppress
from itertools import product
from typing import Literal

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.errors import LockOrderError, UnsentWork
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken

Mode = Literal["conditional_savepoint", "rollback_only", "control_fully", "create_savepoint"]
MODES: list[Mode] = ["conditional_savepoint", "rollback_only", "control_fully", "create_savepoint"]


def _enqueue(session: Session, channel: str) -> None:
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
                savepoint.commit() if kept else savepoint.rollback()
            session.commit()
        survivors = [depth for depth in range(1, 4) if all(fates[:depth])]
        assert taken(database)[0] == [f"depth {depth}" for depth in [0, *survivors]], fates


def test_the_outer_one_ends_over_open_savepoints(engine: Engine, database: Database) -> None:
    """Savepoints left open are released by a commit, of two phases too, with everything they recorded, and go with a
    rollback.
    """
    for depth, by in product((1, 3), ("session", "transaction", "block", "phases", "rollback")):
        with Session(engine, twophase=by == "phases") as session:
            with session.begin() as transaction:
                _enqueue(session, "depth 0")
                for number in range(1, depth + 1):
                    session.begin_nested()
                    _enqueue(session, f"depth {number}")
                if by == "phases":
                    transaction.prepare()
                if by in {"transaction", "phases"}:
                    transaction.commit()
                elif by != "block":
                    session.rollback() if by == "rollback" else session.commit()
            assert not session.in_transaction()
            session.commit()
        kept = range(depth + 1) if by != "rollback" else ()
        assert taken(database)[0] == [f"depth {number}" for number in kept], by


def test_failed_flush_in_a_savepoint(engine: Engine, database: Database) -> None:
    """A flush that fails in a savepoint's block takes that savepoint's messages only, and the transaction goes on."""
    database.execute("insert into upload (name) values ('a')")
    with Session(engine) as session:
        _enqueue(session, "kept")
        with suppress(IntegrityError), session.begin_nested():
            _enqueue(session, "lost")
            session.add(Upload(name="a"))
            session.flush()
        _enqueue(session, "kept too")
        session.commit()
    assert channels(database) == ["kept", "kept too"]


def test_two_phases(engine: Engine, database: Database) -> None:
    """What was prepared is one with its second phase, and nothing can be added between the phases; the receipt knows
    only after a commit.
    """
    prepared = "select count(*) from pg_prepared_xacts where database = current_database()"
    for committed in (True, False):
        with Session(engine, twophase=True) as session:
            session.add(Upload(name="a"))
            receipt = QUEUE.enqueue(session, channel="alice", payload=1)
            session.prepare()
            with pytest.raises(UnsentWork, match="committed or prepared already"):
                _enqueue(session, "bob")
            assert (database.value(prepared), receipt.message_id) == (1, None)
            session.commit() if committed else session.rollback()
        assert taken(database) == ((["alice"], ["a"]) if committed else ([], []))
        assert (receipt.message_id is not None) is committed
        assert database.value(prepared) == 0


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
                _enqueue(session, "alice")
                session.commit()
            controlled = not outer.is_active
            if not controlled:
                assert channels(database) == []
                outer.commit() if commits else outer.rollback()
        assert taken(database) == ((["alice"], ["a"]) if controlled or commits else ([], [])), (mode, in_savepoint)
        assert in_savepoint or controlled is (mode == "control_fully")


def test_many_sessions_in_one_transaction(engine: Engine, database: Database) -> None:
    """Sessions that follow each other in one outer transaction may use the channels in any order, as test suites do;
    inside one transaction of such a session the lock order holds as ever.
    """
    with engine.connect() as connection, connection.begin():
        for channel in "cab":
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                _enqueue(session, channel)
                session.commit()
                _enqueue(session, f"{channel} lost")
                session.rollback()
                QUEUE.cancel(session, 10**9)
                session.commit()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            QUEUE.enqueue(session.connection(), channel="b lost", payload=1)
            with pytest.raises(LockOrderError):
                QUEUE.enqueue(session.connection(), channel="a lost", payload=1)
        assert channels(database) == []
    assert channels(database) == ["c", "a", "b"]
