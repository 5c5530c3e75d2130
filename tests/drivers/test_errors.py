"""Every error of the server that has a class of ours raises it, by its SQLSTATE, with the server's words."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import Enqueue, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.database.errors import refusal_of, sqlstate_of, translated
from sqlalchemy_fairqueue.errors import FairQueueError
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import Face
from tests.fixtures.database import Database

ABOUT = ("asyncpg",)

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


def test_each_code(face: Face) -> None:
    """Code, message, detail, hint and context of a refusal are found, and the class that the code stands for."""
    for code in FairQueueError.of_sqlstate:
        error = face.on_connection(partial(refused, code=code))
        assert sqlstate_of(error) == code
        refusal = refusal_of(error)
        assert (refusal.message, refusal.detail, refusal.hint) == ("the problem", "the detail", "the hint")
        assert "refuse(text)" in (refusal.context or "")
        ours = translated(error, "do something", {})
        assert type(ours) is FairQueueError.of_sqlstate[code]
        assert "cannot do something: the problem (the detail); " in str(ours)


def test_an_argument_that_the_server_refuses(face: Face, queue: Queue, database: Database) -> None:
    """The server's own checks stand behind those of Python."""
    database.execute(
        "create or replace function fq_version() returns smallint language plpgsql as"
        " $$ begin raise 'so' using errcode = 'QF001'; end $$"
    )
    with pytest.raises(InvalidArgument, match="so; see the documentation"):
        face.call(queue, "stats")


def test_contents_are_in_no_error(face: Face, queue: Queue, database: Database) -> None:
    """A row that the application's own trigger refuses is not quoted, whichever driver tells of it."""
    database.execute("alter table fq_message add check (kind <> 'secret kind')")
    for messages in 1, 2:
        many = [Enqueue(channel="a", payload=f"a secret {n}", kind="secret kind") for n in range(messages)]
        with pytest.raises(DBAPIError) as caught:
            face.run(partial(queue.enqueue_many, messages=many))
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
        face.call(queue, "enqueue", channel="日本", payload=1)
    assert face.call(queue, "enqueue", channel="naïve", payload=1).message_id > 0
    assert [one.channel for one in face.call(queue, "dequeue")] == ["naïve"]


_OTHERS = ["postgresql+pg8000", "postgresql+psycopg2cffi", "sqlite+pysqlite"]
_REMEDY = r"speaks %s; the queue needs create_engine\('postgresql\+psycopg://...'\) or .*psycopg2.* or .*asyncpg"
_RECORDING: list[Callable[[Queue, Session], Any]] = [
    lambda queue, session: queue.enqueue(session, channel="a", payload=1),
    lambda queue, session: queue.enqueue_many(session, [Enqueue(channel="a", payload=1)]),
    lambda queue, session: queue.cancel(session, 1),
    lambda queue, session: queue.pause(session, "a"),
]
_AT_ONCE: list[Callable[[Queue, Any], Any]] = [
    lambda queue, where: queue.enqueue(where, channel="a", payload=1).message_id,
    Queue.stats,
    Queue.channels,
    lambda queue, where: queue.dead_letters.list(where),
    lambda queue, where: queue.dequeue(where),
    lambda queue, where: Worker(where, queue),
]


@pytest.mark.parametrize("name", _OTHERS)
def test_other_drivers(queue: Queue, name: str) -> None:
    """Drivers that the queue does not work on are refused by the first call that can know it, before anything is
    connected to; what only records, at once, not at the commit, which goes on without it.
    """
    url = make_url(f"{name}://")
    # The driver need not be installed: it is SQLAlchemy that knows its name.
    other = Engine(NullPool(lambda: pytest.fail("it was connected to")), url.get_dialect()(), url)
    refused = partial(pytest.raises, InvalidArgument, match=_REMEDY % re.escape(name))
    for record in _RECORDING:
        with sessionmaker(other).begin() as session, refused():
            record(queue, session)
    for call in _AT_ONCE:
        with refused():
            call(queue, other)
