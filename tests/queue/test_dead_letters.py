"""Dead letters: listed, redriven, purged, and deleted by housekeeping after their retention."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, InvalidArgument, PayloadError, Queue, Worker
from sqlalchemy_fairqueue.errors import AutocommitError, LockOrderError
from sqlalchemy_fairqueue.models import QueueConfig
from sqlalchemy_fairqueue.worker.duties import Housekeeping
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.worker.helpers import retimed

DAY = timedelta(days=1)


@pytest.fixture
def dead(queue: Queue, engine: Engine, clock: Clock) -> list[int]:
    """Six dead letters, a second apart: of channels a, b, a, b ... and of kinds x, x, x, y, y, y."""
    ids = []
    for number in range(6):
        kind = "x" if number < 3 else "y"
        queue.enqueue(engine, channel="ab"[number % 2], payload=number, kind=kind, headers={"n": number})
        [delivery] = queue.dequeue(engine)
        queue.bury(engine, delivery, reason=f"reason {number}", error=f"error {number}")
        ids.append(delivery.message_id)
        clock.advance(timedelta(seconds=1))
    return ids


def test_what_is_told(queue: Queue, engine: Engine, dead: list[int], clock: Clock) -> None:
    """A dead letter tells the whole message, why it died and when."""
    found = queue.dead_letters.list(engine)
    assert [one.message_id for one in found] == dead
    first = found[0]
    assert (first.queue, first.channel, first.kind) == ("documents", "a", "x")
    assert (first.payload, first.headers) == (0, {"n": 0})
    assert (first.content, first.key) == (b"0", None)
    assert (first.attempts, first.max_attempts, first.deliveries) == (1, 20, 1)
    assert (first.reason, first.error) == ("reason 0", "error 0")
    assert clock.now() - timedelta(minutes=5) < first.enqueued_at <= first.died_at < clock.now()
    assert first.died_at.tzinfo is UTC
    assert len({*found}) == 6


def test_by_name(queue: Queue, engine: Engine) -> None:
    """A key and an ordering key name letters of a channel, so that an ordering key that one of them holds goes on."""
    queue.configure(engine, on_dead="hold")
    for number, (channel, key, ordering_key) in enumerate(
        [("a", "k", "s"), ("a", "l", "t"), ("b", "k", "s"), ("a", None, "s")]
    ):
        queue.enqueue(engine, channel=channel, payload=number, key=key, ordering_key=ordering_key)
    queue.bury(engine, queue.dequeue(engine, limit=9), reason="bad")
    letters = queue.dead_letters

    def named(**name: Any) -> list[object]:
        return [one.payload for one in letters.list(engine, channel="a", **name)]

    assert (named(key="k"), named(ordering_key="t"), named(key="k", ordering_key="t")) == ([0], [1], [])
    assert queue.dequeue(engine) == []
    assert letters.purge(engine, channel="a", ordering_key="t") == 1
    assert list(letters.redrive(engine, channel="a", ordering_key="s").values()) == ["redriven"]
    [again] = queue.dequeue(engine, limit=9)
    assert again.payload == 0
    queue.complete(engine, again)
    assert [one.payload for one in queue.dequeue(engine, limit=9)] == [3]
    assert letters.redrive(engine, channel="b", key="l") == {}
    assert [one.payload for one in letters.list(engine)] == [2]
    for call in (letters.list, letters.redrive, letters.purge):
        with pytest.raises(InvalidArgument, match="channel"):
            call(engine, ordering_key="s")


def test_what_is_asked_for(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """Ids, channel and kind restrict together; pages follow each other without gap or overlap."""
    ids = partial(_ids, queue, engine)
    assert ids(channel="a") == dead[::2]
    assert ids(channel="nobody") == []
    assert ids(kind="y") == dead[3:]
    assert ids(channel="b", kind="y") == [dead[3], dead[5]]
    assert ids(dead[2]) == [dead[2]]
    assert ids([dead[4], dead[1], 10**12]) == [dead[1], dead[4]]
    assert ids([]) == []
    assert ids(dead, channel="b") == dead[1::2]
    pages, last = [], None
    while page := queue.dead_letters.list(engine, limit=4, after=last):
        pages.append([one.message_id for one in page])
        last = page[-1]
    assert pages == [dead[:4], dead[4:]]
    assert Queue("others").dead_letters.list(engine) == []


def test_by_error_and_time(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """A text of the reason or the error, and times, restrict them; pages go on behind what was found."""
    found = queue.dead_letters.list(engine)
    times = [one.died_at for one in found]
    ids = partial(_ids, queue, engine)
    assert ids(error="reason 2") == ids(error="error 2") == [dead[2]]
    assert ids(error="r") == dead
    assert ids(error="%") == ids(error="_") == ids(error="R") == []
    assert ids(error="error", limit=2) == dead[:2]
    assert ids(error="error", limit=2, after=found[1]) == dead[2:4]
    assert ids(error="error", channel="b", kind="y") == [dead[3], dead[5]]
    assert ids(since=times[2]) == dead[2:]
    assert ids(until=times[2]) == dead[:2]
    assert ids(since=times[1], until=times[4], kind="x") == dead[1:3]
    assert ids(since=times[3], after=found[4]) == [dead[5]]


def test_payload_of_another_codec(engine: Engine, queue: Queue, dead: list[int]) -> None:
    """A content that the codec cannot decode spoils its own letter's payload only."""
    raw = Queue("documents", codec=BytesCodec())
    raw.enqueue(engine, channel="a", payload=b"\xff")
    raw.bury(engine, raw.dequeue(engine))
    *good, bad = queue.dead_letters.list(engine)
    assert [one.payload for one in good] == list(range(len(dead)))
    assert bad.content == b"\xff"
    with pytest.raises(PayloadError, match="not JSON"):
        _ = bad.payload


def test_redrive(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """Redriven messages come back with their ids, oldest death first, their attempts counted anew."""
    assert queue.dead_letters.redrive(engine, limit=2) == dict.fromkeys(dead[:2], "redriven")
    assert queue.dead_letters.redrive(engine, kind="x") == {dead[2]: "redriven"}
    assert queue.dead_letters.redrive(engine, [dead[3], 10**12], channel="b") == {
        dead[3]: "redriven",
        10**12: "missing",
    }
    assert queue.dead_letters.redrive(engine, dead[4]) == {dead[4]: "redriven"}
    assert queue.dead_letters.redrive(engine, []) == {}
    assert [one.message_id for one in queue.dead_letters.list(engine)] == [dead[5]]
    batch = queue.dequeue(engine, limit=10)
    assert sorted(one.message_id for one in batch) == dead[:5]
    assert {(one.attempt, one.deliveries) for one in batch} == {(1, 2)}
    queue.complete(engine, batch)


def test_redrive_of_an_ordering_key(queue: Queue, engine: Engine) -> None:
    """Messages of an ordering key go in the order in which they were added, however often each was delivered."""
    ids = [queue.enqueue(engine, channel="a", payload=0, ordering_key="s").message_id for _ in range(4)]
    queue.bury(engine, queue.dequeue(engine), reason="bad")
    for _ in range(2):
        queue.retry(engine, queue.dequeue(engine))
    queue.bury(engine, queue.dequeue(engine), reason="bad")
    queue.retry(engine, queue.dequeue(engine))
    queue.dead_letters.redrive(engine, channel="a", ordering_key="s")
    taken = []
    for _ in ids:
        [delivery] = queue.dequeue(engine, limit=9)
        taken.append(delivery.message_id)
        queue.complete(engine, delivery)
    assert taken == ids


@pytest.mark.parametrize("change", ["redriven", "rewritten"])
def test_what_is_ready_since(queue: Queue, engine: Engine, clock: Clock, change: str) -> None:
    """A message with a priority is ready since it was redriven or rewritten, not since it was enqueued."""
    queue.enqueue(engine, channel="a", payload=1, key="k", priority=1)
    if change == "redriven":
        queue.bury(engine, queue.dequeue(engine), reason="bad")
    clock.advance(DAY)
    if change == "redriven":
        queue.dead_letters.redrive(engine)
    else:
        queue.enqueue(engine, channel="a", payload=2, key="k", priority=1, on_duplicate="replace")
    ready_at = queue.stats(engine).oldest_ready_at
    assert ready_at is not None
    assert clock.now() - ready_at < timedelta(minutes=5)


def test_redrive_of_a_key_that_stands(queue: Queue, engine: Engine) -> None:
    """A dead letter whose key another message holds stays dead, and says so."""
    queue.enqueue(engine, channel="a", payload="dead", key="k")
    [delivery] = queue.dequeue(engine)
    queue.bury(engine, delivery)
    queue.enqueue(engine, channel="a", payload="alive", key="k")
    assert queue.dead_letters.redrive(engine) == {delivery.message_id: "duplicate"}
    assert queue.dead_letters.list(engine)[0].key == "k"
    queue.complete(engine, queue.dequeue(engine))
    assert queue.dead_letters.redrive(engine) == {delivery.message_id: "redriven"}


def test_redrive_is_one_with_its_transaction(
    queue: Queue, engine: Engine, connect: Connect, dead: list[int], database: Database
) -> None:
    """On a session or connection a redrive lives or dies with the transaction, and is done at once in it."""
    with Session(engine) as session:
        assert len(queue.dead_letters.redrive(session)) == 6
        assert queue.dead_letters.list(session) == []
        session.rollback()
        assert len(queue.dead_letters.list(session)) == 6
    connection = connect()
    queue.dead_letters.redrive(connection, dead[0])
    connection.rollback()
    assert queue.dead_letters.purge(connection, dead[1]) == 1
    connection.commit()
    assert database.value("select count(*) from fq_dead_letter") == 5
    assert database.value("select count(*) from fq_message") == 0


def test_redrive_in_the_lock_order(queue: Queue, engine: Engine, connect: Connect, dead: list[int]) -> None:
    """After a redrive its transaction cannot enqueue: that is refused before it is sent, and the next one is free."""
    connection = connect()
    with connection.begin(), Session(connection, join_transaction_mode="rollback_only") as session:
        queue.dead_letters.redrive(session, dead[0])
        with pytest.raises(LockOrderError, match="after a completion"):
            queue.enqueue(session.connection(), channel="z", payload=1)
        session.commit()
        queue.enqueue(session.connection(), channel="z", payload=1)
        session.commit()
    with Session(engine) as session:
        queue.dead_letters.redrive(session, dead[1])
        queue.enqueue(session, channel="z", payload=1)
        with pytest.raises(LockOrderError, match="a redrive is sent at once: call it on an engine"):
            session.commit()


def test_redrive_of_a_joined_session(queue: Queue, engine: Engine, dead: list[int], database: Database) -> None:
    """A redrive binds its own session: the next one in the same outer transaction may enqueue."""
    with engine.connect() as connection, connection.begin():
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            assert queue.dead_letters.redrive(session, dead[0]) == {dead[0]: "redriven"}
            session.commit()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            queue.enqueue(session, channel="a", payload=1)
            session.commit()
    assert database.value("select count(*) from fq_message") == 2


def test_isolation(queue: Queue, connect: Connect, engine: Engine, dead: list[int], database: Database) -> None:
    """A redrive on a connection in AUTOCOMMIT is refused with nothing sent; on an engine of any isolation, and of a
    server whose default is strict, it is committed when it returns.
    """
    with pytest.raises(AutocommitError):
        queue.dead_letters.redrive(connect("AUTOCOMMIT"))
    assert len(queue.dead_letters.list(connect("AUTOCOMMIT"))) == 6
    strict = create_engine(database.url, connect_args={"options": "-c default_transaction_isolation=serializable"})
    assert queue.dequeue(strict) == []
    engines = [strict, *(engine.execution_options(isolation_level=one) for one in ("AUTOCOMMIT", "SERIALIZABLE"))]
    for count, own in enumerate(engines, 1):
        assert len(queue.dead_letters.redrive(own, dead[2 * count - 2 : 2 * count])) == 2
        assert database.value("select count(*) from fq_message") == 2 * count
    strict.dispose()


def test_purge_dead(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """What is given restricts a purge; with nothing given all of the queue's go."""
    letters = queue.dead_letters.list(engine)
    assert queue.dead_letters.purge(engine, []) == 0
    assert queue.dead_letters.purge(engine, [dead[0], 10**12]) == 1
    assert queue.dead_letters.purge(engine, channel="b", kind="x") == 1
    assert queue.dead_letters.purge(engine, until=letters[3].died_at) == 1
    assert queue.dead_letters.purge(engine, until=datetime.now(UTC) - DAY) == 0
    assert queue.dead_letters.purge(engine, before=datetime.now(UTC) - DAY) == 0
    assert Queue("others").dead_letters.purge(engine) == 0
    assert queue.dead_letters.purge(engine) == 3
    assert queue.dead_letters.list(engine) == []


def _bury(queue: Queue, engine: Engine, kind: str = "default") -> int:
    queue.enqueue(engine, channel="a", payload=1, kind=kind)
    [delivery] = queue.dequeue(engine)
    queue.bury(engine, delivery, reason="over")
    return delivery.message_id


def _keep_house(engine: Engine, *queues: Queue, **timings: int) -> None:
    worker = retimed(Worker(engine, *queues or (Queue("documents"),)), **timings)
    Housekeeping(worker._options).run()


def _ids(queue: Queue, engine: Engine, *asked: Any, **restrictions: Any) -> list[int]:
    return [letter.message_id for letter in queue.dead_letters.list(engine, *asked, **restrictions)]


def test_kept_for_ever(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Without a retention nothing is deleted; nor while it lasts."""
    letter = _bury(queue, engine)
    clock.advance(1000 * DAY)
    _keep_house(engine)
    queue.configure(engine, dead_letter_retention=1001 * DAY / 3)
    queue.configure(engine, dead_letter_retention=None)
    _keep_house(engine)
    assert _ids(queue, engine) == [letter]


def test_deleted_after_the_retention(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A letter is deleted once it has been dead for longer than its kind, or else its queue, keeps letters, whichever
    queue the worker serves; those of other queues and younger ones stay.
    """
    other = Queue("other")
    queue.configure(engine, dead_letter_retention={"brief": DAY, "long": 300 * DAY, None: 30 * DAY})
    other.configure(engine, dead_letter_retention={"brief": DAY})
    letters = {kind: _bury(queue, engine, kind) for kind in ("brief", "long", "default")}
    kept = _bury(other, engine)
    _bury(other, engine, "brief")
    clock.advance(2 * DAY)
    young = _bury(queue, engine)
    _keep_house(engine, other)
    assert _ids(queue, engine) == [letters["long"], letters["default"], young]
    clock.advance(29 * DAY)
    _keep_house(engine, other)
    assert _ids(queue, engine) == [letters["long"], young]
    clock.advance(300 * DAY)
    _keep_house(engine, other)
    assert (_ids(queue, engine), _ids(other, engine)) == ([], [kept])


def test_more_than_a_transaction_takes(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A round deletes all that is due, a limited number in each transaction."""
    queue.configure(engine, dead_letter_retention=DAY)
    for _ in range(5):
        _bury(queue, engine)
    clock.advance(2 * DAY)
    _keep_house(engine, pruned_at_once=2)
    assert _ids(queue, engine) == []


def test_letters_in_use(queue: Queue, engine: Engine, clock: Clock, connect: Connect) -> None:
    """A letter that a transaction redrives is passed by, and nobody waits."""
    queue.configure(engine, dead_letter_retention=DAY)
    redriven, _ = _bury(queue, engine), _bury(queue, engine)
    clock.advance(2 * DAY)
    with connect() as other:
        queue.dead_letters.redrive(other, [redriven])
        _keep_house(engine)
        other.commit()
    assert _ids(queue, engine) == []
    assert [delivery.message_id for delivery in queue.dequeue(engine)] == [redriven]


def test_changes_of_kinds(queue: Queue, engine: Engine) -> None:
    """A kind that is not named keeps its retention; None takes a kind's away."""
    queue.configure(engine, dead_letter_retention={"a": DAY, "b": 2 * DAY})
    queue.configure(engine, dead_letter_retention=3 * DAY)
    queue.configure(engine, dead_letter_retention={"b": None, "c": 4 * DAY})
    with Session(engine) as session:
        config = session.scalars(select(QueueConfig)).one()
    day = 86_400_000_000
    assert config.dead_letter_retention == 3 * DAY
    assert config.dead_letter_retention_by_kind == {"a": day, "c": 4 * day}
    queue.configure(engine, dead_letter_retention={"a": None, "c": None})
    with Session(engine) as session:
        assert session.scalars(select(QueueConfig.dead_letter_retention_by_kind)).one() is None


def test_too_many_kinds(queue: Queue, engine: Engine, database: Database) -> None:
    """The row of a queue stays small: a retention for a thousand kinds at most."""
    database.execute(
        "insert into fq_queue (name, dead_letter_retention_by_kind) "
        "select 'documents', jsonb_object_agg(n::text, 1) from generate_series(1, 1000) n"
    )
    with pytest.raises(InvalidArgument, match="queue documents has a retention of dead letters for 1001 kinds"):
        queue.configure(engine, dead_letter_retention={"one more": DAY})
    queue.configure(engine, dead_letter_retention={"7": DAY})
