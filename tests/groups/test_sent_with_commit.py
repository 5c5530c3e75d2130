"""Groups that travel with the COMMIT of their transaction: counted by the server, refused as elsewhere."""

from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, DuplicateMessage, Enqueue, Queue
from sqlalchemy_fairqueue.errors import OutsideGroupWarning
from tests.fixtures.database import Database
from tests.groups.conftest import Make, counts, fold, followups

pytestmark = pytest.mark.installed

_ARRAYS = (
    "'{a,b}', '{x,x}', array['1', '2']::bytea[], '{null}', '{null,null}', '{null,null}', '{null,null}', '{null,null}',"
    " '{20,20}', '{}', null, false, null, null"
)


def test_members_are_counted_by_the_server(engine: Engine, database: Database, queue: Queue) -> None:
    """Groups and others in one transaction, duplicates and an empty group: each count is of what was created."""
    called: list[str] = []

    def hear(*args: Any) -> None:
        called.append(args[2])

    queue.enqueue(engine, channel="a", payload=0, key="taken")
    event.listen(engine, "before_cursor_execute", hear)
    with (
        Session(engine) as session,
        session.begin(),
        queue.group(session) as first,
        queue.group(session) as second,
        queue.group(session) as empty,
    ):
        for number in range(4):
            first.enqueue_many([Enqueue(channel="a", payload=number)])
            second.enqueue_many([Enqueue(channel="a", payload=number, key="taken" if number % 2 else None)])
            with pytest.warns(OutsideGroupWarning):
                queue.enqueue(session, channel="b", payload=number)
    event.remove(engine, "before_cursor_execute", hear)
    found = [counts(queue.groups.status(engine, group.id))[0] for group in (first, second, empty)]
    assert found == [4, 2, 0]
    fold(database)
    assert [queue.groups.status(engine, group.id).finished_at is None for group in (first, second, empty)] == [
        True,
        True,
        False,
    ]
    if engine.driver == "psycopg":
        assert sum("fq_enqueue" in statement for statement in called) == 1
        assert sum("fq_join_group" in statement for statement in called) == 1


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
        then = Enqueue(channel="reports", payload=1, kind="report")
        with queue.group(session, then=then) as inner:
            inner.enqueue_many(Enqueue(channel="a", payload=number) for number in range(3))
        queue.complete(session, delivery)
    assert counts(queue.groups.status(engine, outer)) == (1, 1, 0, 0, 0)
    assert counts(queue.groups.status(engine, inner.id)) == (3, 0, 0, 0, 3)
    queue.complete(engine, queue.dequeue(engine, limit=3))
    fold(database)
    assert followups(database) == ["report", "report"]


def test_strangers_are_refused(engine: Engine, database: Database, queue: Queue) -> None:
    """A group of another transaction or queue takes no members by direct SQL; nothing is added."""
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        pass
    for group_id in (group.id, uuid4()):
        for groups in (f"{{{group_id}}}", f"{{null,{group_id}}}"):
            with pytest.raises(DBAPIError, match="adds to a group that its transaction has not made"):
                database.execute(f"select fq_enqueue('documents', {_ARRAYS}, '{groups}', null, null, true)")
    assert database.value("select count(*) from fq_message") == 0


def test_hidden_elements_of_a_group(database: Database) -> None:
    """An element of an array of fq_make_group that another subscript hides is refused."""
    values = [
        "'{f}'::boolean[]", "'{r}'::text[]", "'{r}'::text[]", "array['1'::bytea]", "'{null}'::jsonb[]",
        "'{null}'::bigint[]", "'{null}'::bigint[]", "'{null}'::integer[]", "'{null}'::text[]", "'{20}'::integer[]",
        "'{null}'::text[]",
    ]  # fmt: skip
    make = "select fq_make_group('documents', gen_random_uuid(), {}, '{{}}'::jsonb)"
    database.execute(make.format(", ".join(values)))
    for place, value in enumerate(values):
        element, _, type_ = value.partition("::")
        hidden = "'[0:0]={1}'::bytea[]" if place == 3 else f"'[0:0]={element[1:-1]}'::{type_}"
        with pytest.raises(DBAPIError, match="has a bad value"):
            database.execute(make.format(", ".join([*values[:place], hidden, *values[place + 1 :]])))


def test_a_bad_value_of_a_follow_up_is_named(database: Database) -> None:
    """fq_make_group says which argument of a message that follows is wrong."""
    for place, value, named in (
        (1, "'{null}'", "channel is null"),
        (2, "array['']", "kind is ''"),
        (3, "'{null}'", "content is null"),
        (5, "'{-1}'", "delay is -1"),
        (7, "'{0}'", "priority is 0"),
        (9, "'{0}'", "max_attempts is 0"),
        (10, "array['']", "ordering_key is ''"),
    ):
        values = ["'{f}'", "'{r}'", "'{r}'", "array['1'::bytea]", *["'{null}'"] * 5, "'{20}'", "'{null}'"]
        values[place] = value
        make = f"select fq_make_group('documents', gen_random_uuid(), {', '.join(values)}, '{{}}'::jsonb)"
        with pytest.raises(DBAPIError, match=f"has a bad value: {named}"):
            database.execute(make)
