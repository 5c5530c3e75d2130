"""Queue work of a session adds no round trip where the driver sends it with COMMIT, else one for each statement."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import Face
from tests.fixtures.database import Database
from tests.fixtures.proxy import Proxy, proxied
from tests.unit_of_work.business import Base, Upload, channels, uploads

ABOUT = ("psycopg", "psycopg async")
Work = Callable[[Session], None]


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """A proxy before the test's database, which has the business tables."""
    Base.metadata.create_all(database.own)
    with proxied(database.url) as made:
        yield made


@pytest.fixture
def face(make_face: MakeFace, proxy: Proxy) -> Face:
    """Each driver in turn, with one connection, by way of the proxy."""
    return make_face(proxy.url, pool_size=1, max_overflow=0)


def _travels(face: Face) -> bool:
    """Whether work travels with COMMIT."""
    return face.sync_engine.dialect.driver == "psycopg"


def _insert(session: Session) -> None:
    session.add(Upload(name=f"upload {next(_numbers)}"))


_numbers = count()


def _round_trips(face: Face, proxy: Proxy, *works: Work) -> int:
    """The round trips of a transaction that does these; it is tried before, so that nothing is done the first time."""

    def work(session: Session) -> None:
        for one in works:
            one(session)

    # psycopg prepares what it has sent five times.
    for _ in range(7):
        face.run(work)
    before = proxy.round_trips
    face.run(work)
    return proxy.round_trips - before


def _assert_adds(face: Face, proxy: Proxy, *works: Work, otherwise: int) -> None:
    """Beside an insert the works add no round trip where they travel with COMMIT, and so many where they do not."""
    alone = _round_trips(face, proxy, _insert)
    assert _round_trips(face, proxy, _insert, *works) == alone + (0 if _travels(face) else otherwise)


def test_an_enqueue(face: Face, proxy: Proxy, queue: Queue, database: Database) -> None:
    """An insert and an enqueue take the round trips of the insert; without a pipeline one more, and no other."""

    def enqueue(session: Session) -> None:
        queue.enqueue(session, channel="a", payload=1)

    _assert_adds(face, proxy, enqueue, otherwise=1)
    _assert_adds(face, proxy, enqueue, enqueue, otherwise=1)
    assert len(channels(database)) == 8 + 2 * 8


def test_many_on_an_engine(face: Face, proxy: Proxy, queue: Queue, database: Database) -> None:
    """Many messages on an engine take one round trip, for their transaction; else its begin, statement and COMMIT."""
    many = [Enqueue(channel=f"{number}", payload=number) for number in range(3)]
    for _ in range(7):
        face.call(queue, "enqueue_many", many)
    before = proxy.round_trips
    receipts = face.call(queue, "enqueue_many", many)
    taken = proxy.round_trips - before
    assert taken == 1 if _travels(face) else taken in {2, 3}
    assert [receipt.outcome for receipt in receipts] == ["created"] * 3
    assert len(channels(database)) == 3 * 8


def test_several_queues_and_a_delivery(face: Face, proxy: Proxy, queue: Queue, database: Database) -> None:
    """A handler's session that completes its delivery and enqueues to two queues adds none either."""
    other = Queue("others")
    for number in range(8):
        queue.enqueue(database.own, channel=f"{number}", payload=number)
    deliveries = iter(queue.dequeue(database.own, limit=8))

    def work(session: Session) -> None:
        queue.complete(session, next(deliveries))
        other.enqueue(session, channel="a", payload=1)
        queue.enqueue(session, channel="next", payload=1)

    _assert_adds(face, proxy, work, otherwise=3)
    assert sorted(channels(database)) == ["a"] * 8 + ["next"] * 8


def test_a_group(face: Face, proxy: Proxy, queue: Queue, database: Database) -> None:
    """A group with a follow-up, members and others adds none; without a pipeline the group and the enqueue."""

    def work(session: Session) -> None:
        with queue.group(session, then=Enqueue(channel="reports", payload=1)) as group:
            group.enqueue_many(Enqueue(channel="a", payload=number) for number in range(3))
        queue.enqueue(session, channel="a", payload=1)

    _assert_adds(face, proxy, work, otherwise=2)
    assert [row.added for row in database.rows("select added from fq_group_note")] == [3] * 8


def test_all_verbs(face: Face, proxy: Proxy, queue: Queue, database: Database) -> None:
    """Deliveries that are settled in different ways travel too, with the lock of all of them."""
    for number in range(8 * 4):
        queue.enqueue(database.own, channel=f"{number}", payload=number)
    deliveries = iter(queue.dequeue(database.own, limit=8 * 4))

    def work(session: Session) -> None:
        for verb in ("retry", "complete", "bury", "release"):
            getattr(queue, verb)(session, next(deliveries))

    _assert_adds(face, proxy, work, otherwise=5)
    assert len(channels(database)) == 8 * 2
    assert database.value("select count(*) from fq_dead_letter") == 8


def test_with_somebody_before_the_commit(face: Face, proxy: Proxy, queue: Queue, database: Database) -> None:
    """Where the application has work to do right before COMMIT, that belongs to the transaction as ever."""

    def audit(connection: Connection) -> None:
        connection.exec_driver_sql("insert into upload (name) select 'audit ' || count(*) from upload")

    def work(session: Session) -> None:
        _insert(session)
        queue.enqueue(session, channel="a", payload=1)

    alone = _round_trips(face, proxy, work)
    event.listen(face.sync_engine, "commit", audit)
    more = 2 if _travels(face) else 1
    assert _round_trips(face, proxy, work) == alone + more
    assert len(uploads(database)) == 8 + 2 * 8
