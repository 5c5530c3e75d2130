"""Queue work has the fate of its transaction."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.errors import AutocommitError, IsolationError
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import FACES, AsyncFace, Face
from tests.fixtures.database import Database
from tests.unit_of_work.business import Upload, channels, uploads
from tests.worker.helpers import auntil

_WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


class _Undo(Exception):
    pass


def test_rollback_and_savepoints(face: Face, queue: Queue, database: Database) -> None:
    """A transaction that is rolled back leaves no message, whether it was sent or not; a savepoint that is rolled back
    takes its work with it, and one that is released hands it on.
    """

    def work(session: Session, *, undone: bool) -> None:
        session.add(Upload(name="x"))
        with session.begin_nested():
            queue.enqueue(session, channel="kept", payload=1)
        with session.begin_nested() as savepoint:
            queue.enqueue(session, channel="gone", payload=1)
            queue.enqueue(session.connection(), channel="gone too", payload=1)
            savepoint.rollback()
        if undone:
            queue.enqueue(session.connection(), channel="sent", payload=1)
            raise _Undo

    with pytest.raises(_Undo):
        face.run(partial(work, undone=True))
    assert (uploads(database), channels(database)) == ([], [])
    face.run(partial(work, undone=False))
    assert (uploads(database), channels(database)) == (["x"], ["kept"])


def test_isolation_levels(make_face: MakeFace, face: Face, queue: Queue, database: Database) -> None:
    """Sessions of each level enqueue and settle; verbs on the engine are READ COMMITTED whatever the engine is."""
    for level in "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE":
        strict = make_face(database.url, isolation_level=level)
        strict.run(lambda session: queue.enqueue(session, channel="a", payload=1))
        [delivery] = strict.call(queue, "dequeue")
        assert strict.run(lambda session: session.scalar(text("show transaction_isolation"))) == level.lower()
        strict.run(partial(queue.complete, deliveries=delivery))
        strict.call(queue, "configure", max_concurrency=1)
        stats = face.call(queue, "stats")
        assert (stats.leased, stats.max_concurrency) == (0, 1)
    with pytest.raises(IsolationError):
        face.on_connection(
            lambda connection: queue.configure(connection, max_concurrency=1), isolation_level="SERIALIZABLE"
        )


def test_a_server_that_is_strict_by_default(make_face: MakeFace, queue: Queue, database: Database) -> None:
    """Where transactions are SERIALIZABLE unless they say otherwise, a dequeue says so, and what is then done on the
    engine is committed when the call returns.
    """
    database.execute(f"alter database \"{database.name}\" set default_transaction_isolation = 'serializable'")
    face = make_face(database.url)
    assert face.on_connection(lambda one: one.scalar(text("show transaction_isolation"))) == "serializable"
    face.run(lambda session: [queue.enqueue(session, channel=name, payload=1) for name in "abcd"])
    deliveries = face.call(queue, "dequeue", limit=4)
    assert len(deliveries) == 4
    face.call(queue, "extend", deliveries, lease=timedelta(hours=1))
    face.call(queue, "enqueue", channel="e", payload=1)
    assert database.value("select expires_at - fq_now() > 1.8e9 from fq_lease")
    assert channels(database) == list("abcde")
    for verb, delivery in zip(("complete", "retry", "release", "bury"), deliveries, strict=True):
        face.call(queue, verb, delivery)
    assert channels(database) == ["b", "c", "e"]
    assert database.value("select count(*) from fq_dead_letter") == 1
    assert database.value("select count(*) from fq_message where lease_id is not null") == 0


def test_autocommit(make_face: MakeFace, face: Face, queue: Queue, database: Database) -> None:
    """A session that commits each statement by itself is refused, and nothing is sent."""
    loose = make_face(database.url, isolation_level="AUTOCOMMIT")
    with pytest.raises(AutocommitError):
        loose.run(lambda session: queue.enqueue(session, channel="a", payload=1))
    with pytest.raises(AutocommitError):
        face.on_connection(
            lambda connection: queue.enqueue(connection, channel="a", payload=1).message_id,
            isolation_level="AUTOCOMMIT",
        )
    assert channels(database) == []


def test_two_phases(face: Face, queue: Queue, database: Database) -> None:
    """Prepared work is committed or rolled back with the rest."""

    def work(session: Session, name: str, *, undone: bool = False) -> None:
        session.add(Upload(name=name))
        queue.enqueue(session, channel=name, payload=1)
        if undone:
            session.prepare()
            raise _Undo

    face.run(partial(work, name="x"), twophase=True)
    with pytest.raises(_Undo):
        face.run(partial(work, name="y", undone=True), twophase=True)
    assert (uploads(database), channels(database)) == (["x"], ["x"])
    assert database.value("select count(*) from pg_prepared_xacts where database = current_database()") == 0
    face.run(partial(work, name="afterwards"))
    assert channels(database) == ["x", "afterwards"]


@pytest.mark.parametrize("make_face", [name for name, (_, face) in FACES.items() if face is AsyncFace], indirect=True)
def test_a_cancelled_commit(face: Any, queue: Queue, database: Database) -> None:
    """A task that is cancelled while its commit waits leaves nothing, and its pool goes on."""
    engine = face.engine
    face.run(lambda session: queue.enqueue(session, channel="a", payload=1, key="k"))

    async def cancelled() -> None:
        async with engine.connect() as holder:
            await holder.execute(text("select 1 from fq_message for update"))

            async def enqueueing() -> None:
                async with AsyncSession(engine) as session, session.begin():
                    session.add(Upload(name="x"))
                    queue.enqueue(session, channel="a", payload=2, key="k", on_duplicate="replace")
                    queue.enqueue(session, channel="b", payload=2)

            task = asyncio.create_task(enqueueing())
            await auntil(lambda: database.value(_WAITING), "the commit waits")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    face.runner.run(cancelled())
    assert (uploads(database), channels(database)) == ([], ["a"])
    face.run(lambda session: queue.enqueue(session, channel="b", payload=1))
    assert channels(database) == ["a", "b"]


def test_a_connection_that_was_lost(face: Face, queue: Queue, database: Database) -> None:
    """A commit over a broken connection fails, leaves nothing, and the pool makes another connection."""

    def work(session: Session) -> None:
        queue.enqueue(session, channel="a", payload=1)
        own = session.scalar(text("select pg_backend_pid()"))
        database.execute("select pg_terminate_backend(:pid, 10000)", pid=own)

    with pytest.raises(DBAPIError) as caught:
        face.run(work)
    assert caught.value.connection_invalidated
    assert channels(database) == []
    face.run(lambda session: queue.enqueue(session, channel="a", payload=1))
    assert channels(database) == ["a"]
