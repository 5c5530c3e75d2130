"""Notes that the ends of members leave: one a call and group, whichever function ends them."""

import re

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.sql import files as sql_files
from tests.fixtures.database import Database
from tests.groups.conftest import Make, counts, fold

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
    """Members of two groups, others and a cancelled one, completed in one call, leave one note a group and outcome."""
    first, second = make(*range(5)), make(*range(3))
    queue.enqueue_many(engine, [Enqueue(channel="a", payload="other")])
    fold(database)
    batch = queue.dequeue(engine, limit=20)
    assert len(batch) == 9
    with Session(engine) as session, session.begin():
        queue.cancel(session, batch[0].message_id)
    queue.complete(engine, batch)
    notes = database.rows("select group_id, done, failed, cancelled from fq_group_note")
    found = {(row.group_id, row.done, row.failed, row.cancelled) for row in notes}
    assert (len(notes), found) == (3, {(first, 4, 0, 0), (first, 0, 0, 1), (second, 3, 0, 0)})
    fold(database)
    assert counts(queue.groups.status(engine, first)) == (5, 4, 0, 1, 0)


def test_a_note_of_failures(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """Members that are buried in one call leave one note; one that was cancelled meanwhile is no failure."""
    group = make(*range(4))
    fold(database)
    batch = queue.dequeue(engine, limit=20)
    with Session(engine) as session, session.begin():
        queue.cancel(session, batch[3].message_id)
    queue.bury(engine, batch, reason="bad")
    notes = database.rows("select done, failed, cancelled from fq_group_note order by failed desc")
    assert [tuple(row) for row in notes] == [(0, 3, 0), (0, 0, 1)]
    assert counts(queue.groups.status(engine, group)) == (4, 0, 3, 1, 0)
