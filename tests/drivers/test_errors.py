"""Every error of the server that has a class of ours raises it, by its SQLSTATE, with the server's words."""

from datetime import timedelta

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    ChannelFull,
    ChannelPolicy,
    DuplicateMessage,
    InvalidArgument,
    LeaseLost,
    Queue,
    SchemaMismatch,
    UnknownChannel,
)
from sqlalchemy_fairqueue.database.calls import translated
from sqlalchemy_fairqueue.database.drivers import refusal_of, sqlstate_of
from sqlalchemy_fairqueue.errors import FairQueueError
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import Face
from tests.fixtures.database import Database

_RAISE = """
create function pg_temp.refuse(code text) returns void language plpgsql as $$
begin
    raise 'the problem' using errcode = code, detail = 'the detail', hint = 'the hint';
end $$
"""


def refused(connection: Connection, code: str) -> DBAPIError:
    """Return the error of a statement that the server refuses with this SQLSTATE."""
    connection.execute(text(_RAISE))
    with pytest.raises(DBAPIError) as caught:
        connection.execute(text("select pg_temp.refuse(:code)"), {"code": code})
    connection.rollback()
    return caught.value


@pytest.mark.parametrize("code", sorted(FairQueueError.of_sqlstate))
def test_each_code(face: Face, code: str) -> None:
    """Code, message, detail, hint and context of a refusal are found, and the class that the code stands for."""
    error = face.on_connection(lambda connection: refused(connection, code))
    assert sqlstate_of(error) == code
    refusal = refusal_of(error)
    assert (refusal.message, refusal.detail, refusal.hint) == ("the problem", "the detail", "the hint")
    assert "refuse(text)" in (refusal.context or "")
    ours = translated(error, "do something")
    assert type(ours) is FairQueueError.of_sqlstate[code]
    assert "cannot do something: the problem (the detail); " in str(ours)


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "23505", "22P05", "57014"])
def test_codes_without_a_class(face: Face, code: str) -> None:
    """What workers and loads read is found as well."""
    error = face.on_connection(lambda connection: refused(connection, code))
    assert sqlstate_of(error) == code
    assert translated(error, "do something") is None


def test_a_duplicate(face: Face, queue: Queue) -> None:
    """A key that is held fails the commit."""
    held = face.call(queue, "enqueue_now", channel="a", payload=1, key="k")
    with pytest.raises(DuplicateMessage) as caught:
        face.run(lambda session: queue.enqueue(session, channel="a", payload=1, key="k", on_duplicate="raise"))
    assert caught.value.message_id == held


def test_a_full_channel(face: Face, queue: Queue) -> None:
    """A channel at its bound fails the commit."""
    face.call(queue, "configure_channel", "a", policy=ChannelPolicy(max_backlog=1))
    face.call(queue, "enqueue_now", channel="a", payload=1)
    with pytest.raises(ChannelFull) as caught:
        face.run(lambda session: queue.enqueue(session, channel="a", payload=1))
    assert (caught.value.channel, caught.value.max_backlog) == ("a", 1)


def test_a_lost_lease(face: Face, queue: Queue) -> None:
    """A delivery that was settled before fails the commit."""
    face.call(queue, "enqueue_now", channel="a", payload=1)
    [delivery] = face.call(queue, "dequeue")
    face.call(queue, "release", delivery)
    with pytest.raises(LeaseLost):
        face.run(lambda session: queue.complete(session, delivery))
    with pytest.raises(LeaseLost):
        face.call(queue, "extend", delivery, lease=timedelta(minutes=1))


def test_an_unknown_channel(face: Face, queue: Queue) -> None:
    """A pause of nothing is refused."""
    with pytest.raises(UnknownChannel, match="nobody"):
        face.call(queue, "pause", "nobody")


def test_no_schema(face: Face) -> None:
    """A schema without an installation is named before anything is sent."""
    with pytest.raises(SchemaMismatch, match="not installed in schema 'nowhere'"):
        face.run(lambda session: Queue("documents", schema="nowhere").enqueue(session, channel="a", payload=1))


def test_an_argument_that_the_server_refuses(face: Face, queue: Queue, database: Database) -> None:
    """The server's own checks stand behind those of Python."""
    database.execute(
        "create or replace function fq_version() returns integer language plpgsql as"
        " $$ begin raise 'so' using errcode = 'QF001'; end $$"
    )
    with pytest.raises(InvalidArgument, match="so; see the documentation"):
        face.call(queue, "stats")


@pytest.mark.parametrize("messages", [1, 2])
def test_contents_are_in_no_error(face: Face, queue: Queue, database: Database, messages: int) -> None:
    """A row that the application's own trigger refuses is not quoted, whichever driver tells of it."""
    database.execute("alter table fq_message add check (kind <> 'secret kind')")

    def work(session: Session) -> None:
        for n in range(messages):
            queue.enqueue(session, channel="a", payload=f"a secret {n}", kind="secret kind")

    with pytest.raises(DBAPIError) as caught:
        face.run(work)
    error: BaseException | None = caught.value
    while error is not None:
        assert "a secret" not in str(error)
        assert b"a secret".hex() not in str(error)
        error = error.__cause__


def test_a_text_that_the_encoding_lacks(make_face: MakeFace, make_database: object, queue: Queue) -> None:
    """A database of another encoding refuses a character; the next call goes on."""
    latin = make_database(encoding="LATIN1")  # type: ignore[operator]
    face = make_face(latin.url, pool_size=1)
    with pytest.raises((DBAPIError, UnicodeError)):
        face.call(queue, "enqueue_now", channel="日本", payload=1)
    assert face.call(queue, "enqueue_now", channel="naïve", payload=1) > 0
    assert [one.channel for one in face.call(queue, "dequeue")] == ["naïve"]
