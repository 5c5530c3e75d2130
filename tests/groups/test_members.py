"""Members of groups: who is one, when one has ended, who may add one, and the notes that their ends leave."""

import re

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, InvalidArgument, LeaseLost, MessageCancelled, Queue
from sqlalchemy_fairqueue.errors import UnknownGroup
from sqlalchemy_fairqueue.sql import files as sql_files
from sqlalchemy_fairqueue.unit_of_work.sessions import send_recorded
from tests.fixtures.database import Database
from tests.groups.conftest import Make, add, counts, fold, followups
from tests.worker.helpers import expire_leases

pytestmark = pytest.mark.installed


def test_keys(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """A duplicate is no member, nor what a full channel drops; a member that another message replaces stays one, and a
    leased one that is, too.
    """
    queue.configure_channel(engine, "full", max_backlog=1, on_full="drop")
    assert counts(queue.groups.status(engine, make(1, 2, 3, channel="full", then=None))) == (1, 0, 0, 0, 1)
    queue.enqueue(engine, channel="a", payload=0, key="standing")
    skipped = make(1, key="standing")
    assert counts(queue.groups.status(engine, skipped)) == (0, 0, 0, 0, 0)
    fold(database)
    assert followups(database) == ["report"]

    group = make(2, key="k")
    queue.enqueue(engine, channel="a", payload=3, key="k", on_duplicate="replace")
    assert counts(queue.groups.status(engine, group)) == (1, 0, 0, 0, 1)
    [member] = [each for each in queue.dequeue(engine, limit=9) if each.payload == 3]
    assert member.headers == {"group": str(group)}
    queue.enqueue(engine, channel="a", payload=4, key="k", on_duplicate="replace")
    queue.complete(engine, member)
    assert counts(queue.groups.status(engine, group)) == (1, 1, 0, 0, 0)
    with pytest.raises(InvalidArgument, match="on_duplicate='replace'"):
        make(5, key="k", on_duplicate="replace")


def test_a_moved_member_goes_on(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """A member that is moved to another channel has not ended, and has its cost and its group there."""
    group = make(1, cost=7)
    [message_id] = [row.id for row in database.rows("select id from fq_message")]
    assert queue.admin.move(engine, message_id, "b") == "moved"
    fold(database)
    assert counts(queue.groups.status(engine, group)) == (1, 0, 0, 0, 1)
    assert database.value("select cost from fq_message") == 7
    queue.complete(engine, queue.dequeue(engine))
    fold(database)
    assert counts(queue.groups.status(engine, group)) == (1, 1, 0, 0, 0)


def test_who_may_not_add(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """Nobody adds to a group of another transaction, by a lost lease, or when the member is cancelled or ended."""
    make(1, 2, 3)
    first, second, third = queue.dequeue(engine, limit=3)
    queue.complete(engine, first)
    with pytest.raises(LeaseLost), Session(engine) as session, session.begin():
        add(session, queue, first, 9)
    queue.cancel(engine, second.message_id)
    with pytest.raises(MessageCancelled), Session(engine) as session, session.begin():
        add(session, queue, second, 9)
    database.execute("update fq_message set group_id = gen_random_uuid() where id = :id", id=third.message_id)
    with pytest.raises(UnknownGroup, match="takes no members"), Session(engine) as session, session.begin():
        add(session, queue, third, 9)
    assert database.value("select count(*) from fq_message where id > :id", id=third.message_id) == 0

    with Session(engine) as session:
        with queue.group(session) as group:
            session.commit()
            with pytest.raises(InvalidArgument, match="takes no more members"):
                group.enqueue_many([Enqueue(channel="a", payload=1)])
        with pytest.raises(InvalidArgument, match="takes no more members"):
            group.enqueue_many([Enqueue(channel="a", payload=1)])
        with queue.group(session) as rolled:
            session.rollback()
            rolled.enqueue_many([Enqueue(channel="a", payload=1)])
        with pytest.raises(UnknownGroup, match="takes no members"):
            session.commit()


def test_a_member_that_adds_is_locked(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """Until the transaction that adds is over nobody ends the member by which it adds, so that the group stays open."""
    group = make(1)
    [first] = queue.dequeue(engine)
    with Session(engine) as session, session.begin():
        add(session, queue, first, 2)
        send_recorded(session)
        expire_leases(database)
        assert list(queue.dequeue(engine, limit=9)) == []
        fold(database)
        assert followups(database) == []
    assert counts(queue.groups.status(engine, group)) == (2, 0, 0, 0, 2)


def test_notes_beyond_the_limit(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """A fold that meets its limit finishes nothing: it may have seen half of a transaction."""
    make(1)
    [first] = queue.dequeue(engine)
    with Session(engine) as session, session.begin():
        add(session, queue, first, *range(3))
        queue.complete(session, first)
    for _ in range(9):
        database.execute("select * from fq_fold_groups(1, 100, false)")
    assert followups(database) == []


_ENDING = {"fq_complete", "fq_complete_many", "fq_bury_messages"}
"""Functions that delete messages that a consumer holds and that were not cancelled."""
_OTHERS = {"fq_return_messages", "fq_cancel", "fq_purge_channel", "fq_move_message", "fq_add_message"}
"""Functions that delete only what nobody holds or what was cancelled, which the trigger notes."""


def test_who_deletes_messages() -> None:
    """Every function that deletes messages is one of these, and those of the first kind note members themselves."""
    deleting = {
        name: text
        for name, text in sql_files.functions(sql_files.latest_version()).items()
        if re.search(r"delete from fairqueue\.fq_message\b", text)
    }
    assert set(deleting) == _ENDING | _OTHERS
    assert {name for name, text in deleting.items() if "fairqueue.fq_end_members(" in text} == _ENDING


def test_one_note_a_call_and_group(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """Members of two groups, others and a cancelled one, completed or buried in one call, leave one note a group and
    outcome; one that was cancelled meanwhile is no failure.
    """
    for verb, done, failed in ((queue.complete, 1, 0), (queue.bury, 0, 1)):
        first, second = make(*range(5), then=None), make(*range(3), then=None)
        queue.enqueue_many(engine, [Enqueue(channel="a", payload="other")])
        fold(database)
        batch = queue.dequeue(engine, limit=20)
        assert len(batch) == 9
        with Session(engine) as session, session.begin():
            queue.cancel(session, batch[0].message_id)
        verb(engine, batch)
        notes = database.rows("select group_id, done, failed, cancelled from fq_group_note")
        assert sorted(map(tuple, notes)) == sorted(
            [(first, 4 * done, 4 * failed, 0), (first, 0, 0, 1), (second, 3 * done, 3 * failed, 0)]
        )
        fold(database)
        assert counts(queue.groups.status(engine, first)) == (5, 4 * done, 4 * failed, 1, 0)
