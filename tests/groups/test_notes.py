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
