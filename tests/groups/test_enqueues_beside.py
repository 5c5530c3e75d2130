"""Enqueues within the block of a group that are no members: they are warned of."""

import re
import warnings
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_fairqueue import Context, Enqueue, Queue
from sqlalchemy_fairqueue.errors import OutsideGroupWarning
from tests.fixtures.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable


def _enqueue(queue: Queue, session: Session | AsyncSession | scoped_session[Session]) -> None:
    queue.enqueue(session, channel="a", payload=1)


def _enqueue_many(queue: Queue, session: Session | AsyncSession) -> None:
    queue.enqueue_many(session, [Enqueue(channel="a", payload=1)])


def _enqueue_job(queue: Queue, session: Session | AsyncSession) -> None:
    @queue.job
    def parse(context: Context) -> None: ...

    parse.enqueue(session, "a")


def test_an_enqueue_within_the_block(engine: Engine, queue: Queue, database: Database) -> None:
    """The warning names queue and group and points at the call; the message is enqueued, and is no member."""
    calls: tuple[Callable[[Queue, Session], None], ...] = (_enqueue, _enqueue_many, _enqueue_job)
    for number, enqueue in enumerate(calls, 1):
        with warnings.catch_warnings(record=True, action="always") as shown, Session(engine) as session:
            with queue.group(session) as group:
                enqueue(queue, session)
                group.enqueue_many([Enqueue(channel="a", payload=2)])
            session.commit()
        [warning] = [one for one in shown if one.category is OutsideGroupWarning]
        assert warning.filename == __file__
        assert f"queue '{queue.name}' is enqueued within the block of group {group.id}" in str(warning.message)
        assert queue.groups.status(engine, group.id).total == 1
        assert database.value("select count(*) from fq_message") == 2 * number


async def test_on_an_async_session(async_engine: AsyncEngine, queue: Queue) -> None:
    """An AsyncSession makes groups in a plain block, and is known as the same session."""
    async with AsyncSession(async_engine) as session:
        with queue.group(session) as group:
            group.enqueue_many([Enqueue(channel="a", payload=2)])
            with pytest.warns(OutsideGroupWarning, match=str(group.id)):
                _enqueue(queue, session)
        await session.commit()
    assert (await queue.groups.status(async_engine, group.id)).total == 1


def test_where_warnings_are_errors(engine: Engine, queue: Queue, database: Database) -> None:
    """The call fails, and has recorded nothing; the group and what it has go on."""
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many([Enqueue(channel="a", payload=2)])
        with pytest.raises(OutsideGroupWarning):
            _enqueue(queue, session)
    assert database.value("select count(*) from fq_message") == 1


def test_what_is_no_mistake(engine: Engine, queue: Queue) -> None:
    """Nothing is said of members, of other queues and sessions, of calls that send at once, nor around the block."""
    other = Queue(f"{queue.name}-other")
    with Session(engine) as session, Session(engine) as another, session.begin():
        _enqueue(queue, session)
        with queue.group(session) as outer:
            outer.enqueue_many([Enqueue(channel="a", payload=2)])
            with other.group(session):
                pass
            _enqueue(other, session)
            _enqueue(queue, another)
            queue.enqueue(engine, channel="a", payload=1)
        _enqueue(queue, session)
        with pytest.raises(ZeroDivisionError), queue.group(session):
            raise ZeroDivisionError
        _enqueue(queue, session)
        assert [name for name in session.__dict__ if "group" in name] == []
    # A commit has ended the group, so that the next transaction is beside it in any case.
    with Session(engine) as session, queue.group(session):
        session.commit()
        _enqueue(queue, session)


def test_a_scoped_session_that_changes(engine: Engine, queue: Queue) -> None:
    """The block ends on the session that it began on, whichever one the registry has then."""
    sessions = scoped_session(sessionmaker(engine))
    with queue.group(sessions):
        first = sessions()
        sessions.remove()
        _enqueue(queue, sessions)
    _enqueue(queue, first)
    for session in (first, sessions()):
        session.rollback()
        session.close()


def test_the_innermost_group_is_named(engine: Engine, queue: Queue) -> None:
    """Where blocks are nested, the warning names the inner group, and in the outer block the outer one."""
    with Session(engine) as session, queue.group(session) as outer:
        with queue.group(session) as inner, pytest.warns(OutsideGroupWarning, match=re.escape(f"{inner.id},")):
            _enqueue(queue, session)
        with pytest.warns(OutsideGroupWarning, match=re.escape(f"{outer.id},")):
            _enqueue(queue, session)
