"""Coalescing enqueues: while a message of the ordering key waits nothing is added, and no change is lost."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, InvalidArgument, Queue, Receipt
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database


def _tell(queue: Queue, where: Any, payload: object = None, **how: Any) -> Receipt:
    how = {"channel": "a", "kind": "index", "ordering_key": "s", **how}
    receipt: Receipt = queue.enqueue(where, payload=payload, coalesce=True, **how)
    return receipt


def test_one_that_waits_is_enough(queue: Queue, engine: Engine) -> None:
    """While one waits nothing is added; of another kind, key or channel it is, and while one is out."""
    first = _tell(queue, engine, 1, delay=timedelta(hours=1))
    assert first.outcome == "created"
    again = _tell(queue, engine, 2)
    assert (again.outcome, again.created, again.message_id) == ("coalesced", False, first.message_id)
    for other in {"kind": "parse"}, {"ordering_key": "t"}, {"channel": "b"}:
        assert _tell(queue, engine, 3, **other).outcome == "created"
    queue.purge(engine, "a")
    _tell(queue, engine, 4)
    out = [one for one in queue.dequeue(engine, limit=9) if one.channel == "a"]
    assert [one.payload for one in out] == [4]
    assert _tell(queue, engine, 5).outcome == "created"
    assert _tell(queue, engine, 6).outcome == "coalesced"
    queue.complete(engine, out)
    assert [one.payload for one in queue.dequeue(engine, limit=9)] == [5]


def test_it_comes_after_the_commit(queue: Queue, engine: Engine, database: Database) -> None:
    """What waits is not delivered before the transaction that coalesced with it has ended, by whatever end."""
    _tell(queue, engine, 1)
    for end in Session.rollback, Session.commit:
        with Session(engine) as session:
            receipt = _tell(queue, session.connection(), 2)
            assert receipt.outcome == "coalesced"
            assert queue.dequeue(engine) == []
            end(session)
        [delivery] = queue.dequeue(engine)
        assert delivery.payload == 1
        queue.release(engine, delivery)
    assert database.value("select count(*) from fq_message") == 1


def test_what_the_transaction_ends_itself(queue: Queue, engine: Engine) -> None:
    """A message that the same transaction cancels or completes is none that waits."""
    first = _tell(queue, engine, 1)
    with Session(engine) as session:
        queue.cancel(session, first.message_id)
        second = _tell(queue, session, 2)
        session.commit()
    assert second.outcome == "created"
    [delivery] = queue.dequeue(engine)
    with Session(engine) as session:
        queue.complete(session, delivery)
        third = _tell(queue, session, 3)
        session.commit()
    assert (delivery.payload, third.outcome) == (2, "created")
    assert [one.payload for one in queue.dequeue(engine, limit=9)] == [3]


def test_many_at_once(queue: Queue, engine: Engine) -> None:
    """Of one transaction the first of each ordering key is added, and others as they are."""
    messages = [Enqueue(channel="a", payload=n, ordering_key=f"k{n % 2}", coalesce=True) for n in range(6)]
    messages += [Enqueue(channel="a", payload=6, key="x"), Enqueue(channel="new", payload=7)]
    receipts = queue.enqueue_many(engine, messages)
    assert [one.outcome for one in receipts] == ["created"] * 2 + ["coalesced"] * 4 + ["created"] * 2
    assert [receipts[n].message_id for n in (2, 3)] == [one.message_id for one in receipts[:2]]
    assert sorted(one.payload for one in queue.dequeue(engine, limit=9)) == [0, 1, 6, 7]


def test_transactions_do_not_wait_for_each_other(queue: Queue, engine: Engine, connect: Connect) -> None:
    """Two transactions coalesce with one message at once, and where none is there each adds one."""
    queue.enqueue(engine, channel="a", payload=0)
    with connect() as one, connect() as two:
        assert [_tell(queue, where, 1).outcome for where in (one, two)] == ["created", "created"]
        one.commit()
        two.commit()
        assert [_tell(queue, where, 1).outcome for where in (one, two)] == ["coalesced", "coalesced"]
        assert queue.stats(engine).ready == 3


@pytest.mark.parametrize("bad", [{"ordering_key": None}, {"key": "k"}])
def test_bad_arguments(queue: Queue, engine: Engine, database: Database, bad: dict[str, Any]) -> None:
    """It needs an ordering key, and takes no key."""
    with pytest.raises(InvalidArgument, match="give an ordering_key, and no key"):
        _tell(queue, engine, **bad)
    with pytest.raises(Exception, match="on_duplicate"):
        database.execute("select fq_enqueue_one('documents', 'a', '1', p_on_duplicate => 'coalesce')")


@pytest.mark.timeout(300)
def test_no_change_is_lost(queue: Queue, engine: Engine, database: Database) -> None:
    """Writers change a row and coalesce; consumers, one at a time, copy it: in the end the copy is the last state."""
    database.execute(
        "create table document (id int primary key, version int not null, indexed int not null, at_work int)"
    )
    documents, writes = 3, 25
    database.execute(f"insert into document select n, 0, 0, 0 from generate_series(0, {documents - 1}) n")
    written = threading.Event()
    wrong: list[str] = []

    def write(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - any order will do
        for _ in range(writes):
            document = chance.randrange(documents)
            with Session(engine) as session:
                session.execute(text("update document set version = version + 1 where id = :id"), {"id": document})
                _tell(queue, session, document, ordering_key=str(document))
                session.rollback() if chance.random() < 0.2 else session.commit()

    def is_idle() -> bool:
        stats = queue.stats(engine)
        return stats.ready + stats.held + stats.leased == 0

    def consume() -> None:
        while not (written.is_set() and is_idle()):
            for delivery in queue.dequeue(engine, limit=2):
                at_work = "update document set at_work = at_work + :step where id = :id returning version, at_work"
                with engine.begin() as begun:
                    [(version, workers)] = begun.execute(text(at_work), {"step": 1, "id": delivery.payload})
                if workers != 1:
                    wrong.append(f"{workers} work on document {delivery.payload}")
                with Session(engine) as session:
                    session.execute(text(at_work), {"step": -1, "id": delivery.payload})
                    copy = "update document set indexed = greatest(indexed, :version) where id = :id"
                    session.execute(text(copy), {"version": version, "id": delivery.payload})
                    queue.complete(session, delivery)
                    session.commit()

    with ThreadPoolExecutor(6) as pool:
        consumers = [pool.submit(consume) for _ in range(3)]
        for writer in [pool.submit(write, number) for number in range(3)]:
            writer.result()
        written.set()
        for consumer in consumers:
            consumer.result()
    assert wrong == []
    assert database.value("select count(*) from document where indexed <> version or at_work <> 0") == 0


@pytest.mark.timeout(300)
def test_no_circle_of_waits(queue: Queue, engine: Engine) -> None:
    """Transactions that coalesce, settle and cancel by name in any mixture never wait for each other in a circle."""

    def work(number: int) -> int:
        chance, done = random.Random(number), 0  # noqa: S311 - any order will do
        for _ in range(40):
            deliveries = queue.dequeue(engine, limit=2)
            with Session(engine) as session:
                for delivery in deliveries:
                    queue.complete(session, delivery)
                for _ in range(3):
                    key = chance.choice("stu")
                    if chance.random() < 0.3:
                        queue.cancel(session, channel="a", ordering_key=key)
                    else:
                        _tell(queue, session, ordering_key=key)
                session.commit()
                done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        assert [one.result() for one in [pool.submit(work, number) for number in range(4)]] == [40] * 4
