"""Groups that travel with the COMMIT of their transaction: counted by the server, refused as elsewhere; what members
have in common is sent once, and each is what it would be alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, DuplicateMessage, Enqueue, Queue
from sqlalchemy_fairqueue.errors import OutsideGroupWarning
from tests.fixtures.database import Database
from tests.groups.conftest import REPORT, Make, counts, fold, followups

pytestmark = pytest.mark.installed

_ARRAYS = (
    "'{a,b}', '{x,x}', array['1', '2']::bytea[], '{null}', '{null,null}', '{null,null}', '{null,null}', '{null,null}',"
    " '{20,20}', '{}', null, false, null, null"
)


@contextmanager
def _heard(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are sent in the block, with their parameters."""
    heard: list[tuple[str, Any]] = []

    def hear(*given: Any) -> None:
        heard.append(given[2:4])

    event.listen(engine, "before_cursor_execute", hear)
    yield heard
    event.remove(engine, "before_cursor_execute", hear)


def test_members_are_counted_by_the_server(engine: Engine, database: Database, queue: Queue) -> None:
    """Groups and others in one transaction, duplicates and an empty group: each count is of what was created."""
    queue.enqueue(engine, channel="a", payload=0, key="taken")
    with _heard(engine) as heard, Session(engine) as session:
        with queue.group(session) as first, queue.group(session) as second, queue.group(session) as empty:
            for number in range(4):
                first.enqueue_many([Enqueue(channel="a", payload=number)])
                second.enqueue_many([Enqueue(channel="a", payload=number, key="taken" if number % 2 else None)])
                with pytest.warns(OutsideGroupWarning):
                    queue.enqueue(session, channel="b", payload=number)
        session.commit()
    fold(database)
    found = [queue.groups.status(engine, group.id) for group in (first, second, empty)]
    assert [(one.total, one.finished_at is None) for one in found] == [(4, True), (2, True), (0, False)]
    if engine.driver == "psycopg":
        assert [sum(name in sent for sent, _ in heard) for name in ("fq_enqueue", "fq_join_group")] == [1, 1]


def test_refused_with_the_commit(engine: Engine, database: Database, queue: Queue) -> None:
    """A key that stands and a full channel fail the COMMIT, and leave nothing of the group."""
    queue.enqueue(engine, channel="a", payload=0, key="taken")
    queue.configure_channel(engine, "small", max_backlog=1)
    for bad, error in (
        (Enqueue(channel="a", payload=1, key="taken", on_duplicate="raise"), DuplicateMessage),
        (Enqueue(channel="small", payload=1), ChannelFull),
    ):
        with pytest.raises(error), Session(engine) as session, session.begin(), queue.group(session) as group:
            group.enqueue_many([Enqueue(channel="small", payload=0), bad])
    assert database.value("select count(*) from fq_group") == database.value("select count(*) from fq_group_note") == 0
    assert database.value("select count(*) from fq_message") == 1


def test_a_member_that_settles_makes_a_group(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """A handler's transaction makes a group and completes its message together."""
    outer = make(1)
    [delivery] = queue.dequeue(engine, limit=1)
    with Session(engine) as session, session.begin():
        with queue.group(session, then=REPORT) as inner:
            inner.enqueue_many(Enqueue(channel="a", payload=number) for number in range(3))
        queue.complete(session, delivery)
    assert counts(queue.groups.status(engine, outer)) == (1, 1, 0, 0, 0)
    assert counts(queue.groups.status(engine, inner.id)) == (3, 0, 0, 0, 3)
    queue.complete(engine, queue.dequeue(engine, limit=3))
    fold(database)
    assert followups(database) == ["report", "report"]


def test_strangers_are_refused(database: Database, make: Make) -> None:
    """A group of another transaction or queue takes no members by direct SQL; nothing is added."""
    for group_id in (make(then=None), uuid4()):
        for groups in (f"{{{group_id}}}", f"{{null,{group_id}}}"):
            with pytest.raises(DBAPIError, match="adds to a group that its transaction has not made"):
                database.execute(f"select fq_enqueue('documents', {_ARRAYS}, '{groups}', null, null, true)")
    assert database.value("select count(*) from fq_message") == 0


def test_what_members_have_in_common_is_sent_once(engine: Engine, database: Database, queue: Queue) -> None:
    """One header and one group for all of a call, where no member has other headers; those whose keys stay taken for a
    period have them too.
    """
    day = timedelta(days=1)
    with _heard(engine) as heard, Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many(Enqueue(channel=f"c{number % 3}", payload=number) for number in range(30))
    [call] = [parameters for statement, parameters in heard if "fq_enqueue" in statement]
    # In the header and as the group.
    assert str(call).count(str(group.id)) == 2
    with Session(engine) as session, session.begin(), queue.group(session) as kept:
        kept.enqueue_many(
            [Enqueue(channel="a", payload=n, key=f"k{n}", unique_for=day if n else None) for n in range(3)]
        )
    for one, members in ((group, 30), (kept, 3)):
        assert counts(queue.groups.status(engine, one.id))[:2] == (members, 0)
        headers = database.rows("select headers from fq_message where group_id = :id", id=one.id)
        assert [row.headers for row in headers] == [{"group": str(one.id)}] * members


def test_groups_and_others_in_one_transaction(engine: Engine, database: Database, queue: Queue) -> None:
    """Each member has its own group and headers, others have none, and what is no member is not counted."""
    with Session(engine) as session, session.begin():
        with queue.group(session) as first:
            first.enqueue_many([Enqueue(channel="a", payload=n) for n in (1, 2)])
            with pytest.warns(OutsideGroupWarning):
                queue.enqueue(session, channel="a", payload="none")
            with queue.group(session) as second:
                twins = [Enqueue(channel="b", payload=n, key="k", headers={"own": n}) for n in (3, 4)]
                receipts = second.enqueue_many([*twins, Enqueue(channel="a", payload=5)])
            first.enqueue_many([Enqueue(channel="b", payload=6)])
        queue.enqueue(session, channel="b", payload="other", headers={"own": 7})
    assert [one.outcome for one in receipts] == ["created", "duplicate", "created"]
    assert receipts[0].message_id == receipts[1].message_id
    group_ids = {1: first.id, 2: first.id, "none": None, 3: second.id, 5: second.id, 6: first.id, "other": None}
    own = {3: {"own": 3}, "other": {"own": 7}}
    found = {
        queue.codec.decode(bytes(content)): (group_id, headers)
        for content, group_id, headers in map(tuple, database.rows("select content, group_id, headers from fq_message"))
    }
    expected = {
        payload: (group_id, {**own.get(payload, {}), **({"group": str(group_id)} if group_id else {})} or None)
        for payload, group_id in group_ids.items()
    }
    assert found == expected
    assert [queue.groups.status(engine, group.id).total for group in (first, second)] == [3, 2]


_VALUES = (
    "'{f}'::boolean[]", "'{r}'::text[]", "'{r}'::text[]", "array['1'::bytea]", "'{null}'::jsonb[]",
    "'{null}'::bigint[]", "'{null}'::bigint[]", "'{null}'::integer[]", "'{null}'::text[]", "'{20}'::integer[]",
    "'{null}'::text[]",
)  # fmt: skip


def _made_by_sql(place: int = 0, value: str = _VALUES[0]) -> str:
    """A call of fq_make_group with one message that follows, one value of which is this."""
    values = ", ".join([*_VALUES[:place], value, *_VALUES[place + 1 :]])
    return f"select fq_make_group('documents', gen_random_uuid(), {values}, '{{}}'::jsonb)"


def test_bad_values_of_a_follow_up(database: Database) -> None:
    """fq_make_group refuses an element of an array that another subscript hides, and says which argument of a message
    that follows is wrong.
    """
    database.execute(_made_by_sql())
    for place, value in enumerate(_VALUES):
        element, _, type_ = value.partition("::")
        hidden = "'[0:0]={1}'::bytea[]" if place == 3 else f"'[0:0]={element[1:-1]}'::{type_}"
        with pytest.raises(DBAPIError, match="has a bad value"):
            database.execute(_made_by_sql(place, hidden))
    for place, value, named in (
        (1, "'{null}'", "channel is null"),
        (2, "array['']", "kind is ''"),
        (3, "'{null}'", "content is null"),
        (5, "'{-1}'", "delay is -1"),
        (7, "'{0}'", "priority is 0"),
        (9, "'{0}'", "max_attempts is 0"),
        (10, "array['']", "ordering_key is ''"),
    ):
        with pytest.raises(DBAPIError, match=f"has a bad value: {named}"):
            database.execute(_made_by_sql(place, value))
