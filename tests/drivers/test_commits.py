"""A COMMIT that work travels with fails as one that comes after it, and leaves the connection healthy."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, ChannelPolicy, Delivery, DuplicateMessage, Enqueue, LeaseLost, Queue
from sqlalchemy_fairqueue.errors import UnsentWork
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import PREPARED, Face
from tests.fixtures.database import Database
from tests.fixtures.proxy import proxied
from tests.unit_of_work.business import Upload, channels, uploads

ABOUT = ("psycopg", "psycopg async")


def _pid(face: Face) -> Any:
    return face.run(lambda session: session.scalar(text("select pg_backend_pid()")))


def _fails(face: Face, error: type[Exception], work: Callable[[Session], Any]) -> Any:
    """The error of a commit of *work*, beside an insert; the connection goes on, and a second commit is refused."""
    pid = _pid(face)

    def committing(session: Session) -> BaseException:
        session.add(Upload(name="lost"))
        work(session)
        with pytest.raises(error) as caught:
            session.commit()
        with pytest.raises(UnsentWork, match=error.__name__):
            session.commit()
        session.rollback()
        return caught.value

    found = face.run(committing)
    assert _pid(face) == pid
    return found


def test_a_duplicate(single: Face, queue: Queue, database: Database) -> None:
    """Of several messages it names the one whose key stands, and who holds it."""
    holder = single.run(lambda session: queue.enqueue(session, channel="b", payload=1, key="k"))
    messages = [
        Enqueue(channel="a", payload=1, key="k", on_duplicate="raise"),
        Enqueue(channel="b", payload=2, key="k", on_duplicate="raise"),
        Enqueue(channel="b", payload=3, key="k"),
    ]
    for sent in (messages, messages[1:2]):
        error = _fails(single, DuplicateMessage, partial(queue.enqueue_many, messages=sent))
        assert (error.channel, error.key, error.message_id, error.cancelled) == ("b", "k", holder.message_id, False)
    assert (channels(database), uploads(database)) == (["b"], [])


def test_a_full_channel(single: Face, queue: Queue, database: Database) -> None:
    """It names the channel and its bound."""
    single.call(queue, "configure_channel", "full", ChannelPolicy(max_backlog=1))
    single.run(lambda session: queue.enqueue(session, channel="full", payload=1))

    def work(session: Session) -> None:
        queue.enqueue(session, channel="a", payload=1)
        queue.enqueue(session, channel="full", payload=1)

    error = _fails(single, ChannelFull, work)
    assert (error.channel, error.max_backlog) == ("full", 1)
    assert (channels(database), uploads(database)) == (["full"], [])


def test_a_lost_lease(single: Face, database: Database) -> None:
    """It names the lost messages, and the consumer that holds the first."""
    for number, verb in enumerate(("complete", "retry", "release", "bury"), 1):
        queue, rival = Queue(verb), Queue(verb)
        single.run(partial(queue.enqueue_many, messages=[Enqueue(channel=name, payload=1) for name in "abc"]))
        first, second, third = single.call(queue, "dequeue", limit=3)
        single.call(queue, "release", [second, third])
        [theirs, _] = single.call(rival, "dequeue", limit=2)
        error = _fails(single, LeaseLost, partial(_settle_beside_an_enqueue, queue, verb, [third, first, second]))
        assert error.message_ids == (second.message_id, third.message_id)
        assert (error.lease_id, error.expired_at) == (second.lease.id, second.lease.expires_at)
        assert error.holder == theirs.lease.consumer
        assert first.settled == []
        assert (sorted(channels(database)), uploads(database)) == (sorted("abc" * number), [])


def _settle_beside_an_enqueue(queue: Queue, verb: str, deliveries: list[Delivery], session: Session) -> None:
    queue.enqueue(session, channel="d", payload=1)
    getattr(queue, verb)(session, deliveries)


def test_prepared_statements_that_failed(single: Face, queue: Queue, database: Database) -> None:
    """The statements that a driver prepares after some calls are not lost with the transactions that failed."""
    single.run(lambda session: queue.enqueue(session, channel="a", payload=1, key="k"))
    for number in range(PREPARED):
        fresh = [Enqueue(channel="a", payload=1, key=f"{number}", on_duplicate="raise")]
        _fails(single, DuplicateMessage, partial(queue.enqueue, channel="a", payload=1, key="k", on_duplicate="raise"))
        single.run(partial(queue.enqueue_many, messages=fresh))
    assert len(channels(database)) == PREPARED + 1


def test_a_deferred_constraint(single: Face, queue: Queue, database: Database) -> None:
    """What the COMMIT itself refuses is its own error, not one of the enqueue, and nothing is committed."""
    database.execute("alter table upload add constraint once unique (name) deferrable initially deferred")
    database.execute("alter table upload drop constraint upload_name_key")
    pid = _pid(single)

    def work(session: Session) -> None:
        queue.enqueue(session, channel="a", payload=1)
        session.add_all([Upload(name="same"), Upload(name="same")])

    with pytest.raises(IntegrityError) as caught:
        single.run(work)
    assert caught.value.statement is None
    assert "once" in str(caught.value)
    assert (channels(database), uploads(database)) == ([], [])
    assert _pid(single) == pid


def test_a_deferred_trigger(single: Face, queue: Queue, database: Database) -> None:
    """An error at the end of a transaction that has only an enqueue fails the commit, and nothing is committed."""
    for _ in range(PREPARED):
        single.run(lambda session: queue.enqueue(session, channel="a", payload=1))
    database.execute(
        "create function no() returns trigger language plpgsql as"
        " $$ begin raise exception 'not now' using errcode = '23514'; end $$"
    )
    database.execute(
        "create constraint trigger no after insert on fq_message deferrable initially deferred"
        " for each row execute function no()"
    )
    pid, receipts = _pid(single), []
    with pytest.raises(IntegrityError, match="not now"):
        single.run(lambda session: receipts.append(queue.enqueue(session, channel="b", payload=1)))
    assert receipts[0].outcome is None
    assert channels(database) == ["a"] * PREPARED
    assert _pid(single) == pid


def test_an_error_of_the_statement(single: Face, queue: Queue, database: Database) -> None:
    """An error of the statement is found by its SQLSTATE, as on the way without COMMIT."""
    single.run(lambda session: queue.enqueue(session, channel="a", payload=1))
    database.execute("alter table fq_message add constraint odd check (kind <> 'odd')")
    error = _fails(single, IntegrityError, lambda session: queue.enqueue(session, channel="a", payload=1, kind="odd"))
    assert "fq_enqueue" in error.statement
    assert "odd" in str(error)
    assert channels(database) == ["a"]


def test_one_who_executes_himself(single: Face, queue: Queue, database: Database) -> None:
    """An application that executes statements in a way of its own goes on to do so, and nothing is lost."""
    seen = []

    def own(cursor: Any, statement: str, parameters: Any, _: Any) -> bool:
        seen.append("fq_enqueue" in statement)
        cursor.execute(statement, parameters)
        return True

    event.listen(single.sync_engine, "do_execute", own)
    receipt = single.run(lambda session: queue.enqueue(session, channel="b", payload=1))
    assert receipt.outcome == "created"
    assert seen[-1]
    assert channels(database) == ["b"]


@pytest.mark.parametrize("make_face", ["psycopg", "psycopg async"], indirect=True)
def test_a_server_that_is_shut_down_after_the_commit(
    make_face: MakeFace, face: Face, queue: Queue, database: Database
) -> None:
    """The commit fails as a disconnect, though it was made, and the session goes on with another connection."""
    assert channels(database) == []
    with proxied(database.url) as proxy:
        far = make_face(face.url.set(host=proxy.url.host, port=proxy.url.port, query={}))

        def committing(session: Session) -> DBAPIError:
            queue.enqueue(session, channel="a", payload=1)
            session.add(Upload(name="kept"))
            session.flush()
            proxy.ends_after = b"COMMIT\0"
            with pytest.raises(DBAPIError) as caught:
                session.commit()
            proxy.ends_after = None
            session.rollback()
            assert uploads(database) == ["kept"]
            return caught.value

        assert far.run(committing).connection_invalidated
        far.run(lambda session: queue.enqueue(session, channel="b", payload=1))
    assert channels(database) == ["a", "b"]
