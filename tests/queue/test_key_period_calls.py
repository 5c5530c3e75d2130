"""Calls of fq_enqueue with periods beside those without: what is refused and taken, and what an undone one leaves."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, Enqueue, Queue
from sqlalchemy_fairqueue.database.errors import refusal_of
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.queue.periods import HOUR, complete_all, enqueue_key

_NULLS = dict.fromkeys(("headers", "delays", "ats", "priorities", "max_attempts"), "{null,null}")
_PERIODS = {"unique_fors": "{3600000000,3600000000}", "from_ends": "{false,false}"}
_TWO: dict[str, str | None] = {
    "channels": "{a,a}", "kinds": "{x,x}", "contents": "{y,y}", "keys": "{k,free}", **_NULLS, **_PERIODS
}  # fmt: skip
_GROUP = "4b8a8f4e-6f0e-4c3c-9a0c-3d0d0a5d7c11"


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection whose transactions are rolled back."""
    with engine.connect() as connection:
        yield connection


def _call(connection: Connection, words: dict[str, str | None], *, periods: bool) -> list[tuple[Any, ...]]:
    """Send a call whose arrays are literals of SQL, two elements each, unless others are given; its rows in order."""
    left_out = () if periods else _PERIODS
    given = {one: value for one, value in {**_TWO, **words}.items() if one not in left_out}
    arguments = ", ".join(f"p_{one} => %({one})s" for one in given)
    rows = connection.exec_driver_sql(f"select * from fq_enqueue('documents', {arguments}) order by ordinal", given)
    return [tuple(row) for row in rows]


def _refused(connection: Connection, words: dict[str, str | None], *, periods: bool) -> tuple[str | None, str]:
    """Send a call that is refused: the SQLSTATE and the first line of the message."""
    with pytest.raises(DBAPIError) as caught:
        _call(connection, words, periods=periods)
    connection.rollback()
    found = refusal_of(caught.value)
    return found.sqlstate, str(caught.value.orig).splitlines()[0]


def _alone(words: dict[str, str | None]) -> dict[str, str | None]:
    """The same call with the first of its two messages alone."""
    return {name: f"{{{value[1:-1].split(',')[0]}}}" if value else value for name, value in {**_TWO, **words}.items()}


BAD: list[dict[str, str | None]] = [
    {"contents": "{null,y}"},
    {"keys": '{"",k}'},
    {"max_attempts": "{0,null}"},
    {"on_duplicates": "{keep,skip}"},
]


def test_a_bad_value_is_refused_whether_its_key_is_taken(queue: Queue, engine: Engine, connection: Connection) -> None:
    """A message with a period, alone and beside others, is refused as one without; it is named by its place."""
    for taken in ("free", "living", "ended"):
        if taken == "living":
            enqueue_key(queue, engine)
            _, said = _refused(connection, {"max_attempts": "{null,0}"}, periods=True)
            assert "message 2 of fq_enqueue has a bad value: max_attempts is 0" in said
        if taken == "ended":
            complete_all(queue, engine)
        for words in [*BAD, *map(_alone, BAD)]:
            state, said = _refused(connection, words, periods=False)
            assert state == "QF001"
            assert _refused(connection, words, periods=True) == (state, said), (taken, words)


SHAPES: list[dict[str, str | None]] = [
    {"headers": '{"1"}', "groups": f"{{{_GROUP}}}"},
    {"headers": '[0:0]={"1"}'},
    {"groups": f"[7:7]={{{_GROUP}}}"},
]


@pytest.mark.parametrize("taken", ["free", "living"])
def test_one_element_for_all(queue: Queue, engine: Engine, connection: Connection, taken: str) -> None:
    """Headers and groups of one element hold for all messages that are added, with periods as without."""
    queue.enqueue(engine, channel="a", payload=1)
    if taken == "living":
        enqueue_key(queue, engine)
    for words in SHAPES:
        kept = []
        for periods in (False, True):
            outcomes = [row[3] for row in _call(connection, words, periods=periods)]
            added = connection.exec_driver_sql(
                "select key, headers, group_id from fq_message where kind = 'x' order by key"
            ).all()
            kept.append((outcomes, added))
            connection.rollback()
        assert kept[0] == kept[1], words
        assert kept[0][0] == ["created" if taken == "free" else "duplicate", "created"]
        assert len(kept[0][1]) == (2 if taken == "free" else 1)


def test_other_lengths(connection: Connection) -> None:
    """Arrays of other lengths are refused, those of periods too."""
    lengths: list[dict[str, str | None]] = [{"headers": "{null,null,null}"}, {"headers": None}, {"keys": "{k}"}]
    for words in lengths:
        assert _refused(connection, words, periods=True) == _refused(connection, words, periods=False), words
    for name, value in {"unique_fors": "{1}", "from_ends": "{true}"}.items():
        assert "differ in length" in _refused(connection, {name: value}, periods=True)[1]


def test_a_bad_period(connection: Connection) -> None:
    """A period out of its bounds, and one without a key, is refused, alone and beside others."""
    bad: list[tuple[dict[str, str | None], str]] = [
        ({"unique_fors": "{0,1}"}, "unique_for is 0"),
        ({"unique_fors": "{3153600000000001,1}"}, "unique_for is 3153600000000001"),
        ({"keys": "{null,k}"}, "key is null"),
    ]
    for words, said in bad:
        for given in (words, _alone(words)):
            assert f"message 1 of fq_enqueue has a bad value: {said}" in _refused(connection, given, periods=True)[1]


def test_an_undone_member_is_none(connect: Connect, waits: Waits, database: Database) -> None:
    """A member whose key was taken for a period meanwhile is a duplicate: its group neither counts it nor its end."""
    queue = Queue("documents")
    holder = connect()
    queue.configure_channel(holder, "new", weight=2)

    def add(rival: Engine) -> tuple[str | None, UUID]:
        with Session(rival) as session, queue.group(session) as group:
            [receipt] = group.enqueue_many([Enqueue(channel="new", key="k", payload=1, unique_for=HOUR)])
            session.commit()
        return receipt.outcome, group.id

    rival = waits.start(add).blocked()
    database.execute("insert into fq_key_period values ('documents', 'new', 'k', 1000, 1, fq_now() + 1000000000)")
    holder.commit()
    outcome, group_id = rival.result()
    assert outcome == "duplicate"
    assert database.value("select count(*) from fq_message") == 0
    status = queue.groups.status(connect(), group_id)
    assert (status.total, status.cancelled) == (0, 0)


@pytest.mark.parametrize("bounded", [False, True])
def test_an_undone_message_makes_no_room(
    engine: Engine, connect: Connect, waits: Waits, database: Database, *, bounded: bool
) -> None:
    """A message alone that finds a period which began while it waited for its channel to be made is taken back, and its
    signal too: a bound that is set before its enqueue, or afterwards, is kept.
    """
    queue = Queue("documents")
    holder = connect()
    queue.configure_channel(holder, "new", max_backlog=3 if bounded else None)
    rival = waits.start(
        lambda rival: queue.enqueue(rival, channel="new", key="k", payload=2, unique_for=HOUR).message_id
    ).blocked()
    # As if another message had come and gone before it looked.
    database.execute("insert into fq_key_period values ('documents', 'new', 'k', 1000, 1, fq_now() + 1000000000)")
    holder.commit()
    assert rival.result() == 1000
    assert database.value("select count(*) from fq_message") == queue.stats(engine).ready == 0
    queue.configure_channel(engine, "new", max_backlog=3)
    for number in range(3):
        queue.enqueue(engine, channel="new", payload=number)
    with pytest.raises(ChannelFull):
        queue.enqueue(engine, channel="new", payload="one too many")
    assert database.value("select sum(added) from fq_signal") == 3
