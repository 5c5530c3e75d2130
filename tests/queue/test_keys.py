"""A key is unique among the messages of its channel that are not done."""

from functools import partial

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue, Receipt
from tests.factories import EnqueueFactory
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits


def _enqueue(engine: Engine, payload: object = 1, channel: str = "a") -> Receipt:
    with Session(engine) as session:
        receipt = Queue("documents").enqueue(session, channel=channel, payload=payload, key="k")
        session.commit()
    return receipt


def test_within_one_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """Of one key in one transaction the first stands; the others' receipts name it, and other channels are free."""
    with Session(engine) as session:
        first = queue.enqueue(session, channel="a", payload="first", key="k")
        second = queue.enqueue(session, channel="a", payload="second", key="k")
        many = queue.enqueue_many(
            session, [EnqueueFactory.build(channel="a", key="k"), EnqueueFactory.build(channel="b", key="k")]
        )
        session.commit()
    assert (first.created, second.created) == (True, False)
    assert second.message_id == many[0].message_id == first.message_id
    assert [receipt.created for receipt in many] == [False, True]
    assert database.value("select count(*) from fq_message") == 2


def test_until_it_is_done(queue: Queue, engine: Engine) -> None:
    """The key stands while its message is ready, leased and retried, and is free once it is completed or buried."""
    first = _enqueue(engine)
    for end in (queue.complete, queue.bury):
        assert _enqueue(engine).created is False
        [delivery] = queue.dequeue(engine)
        assert _enqueue(engine).created is False
        queue.retry(engine, delivery)
        assert _enqueue(engine).message_id == delivery.message_id
        [delivery] = queue.dequeue(engine)
        end(engine, delivery)
        again = _enqueue(engine)
        assert again.created
        assert again.message_id != first.message_id


def test_waits_and_then_sees(queue: Queue, connect: Connect, waits: Waits) -> None:
    """A key that another transaction is adding is waited for: committed it stands, rolled back it is free."""
    for committed in (True, False):
        holder = connect()
        message_id = queue.enqueue(holder, channel=f"{committed}", payload=1, key="k").message_id
        rival = waits.start(partial(_enqueue, channel=f"{committed}")).blocked()
        if committed:
            holder.commit()
            assert (rival.result().created, rival.result().message_id) == (False, message_id)
        else:
            holder.rollback()
            assert rival.result().created


def test_waits_for_an_open_end(queue: Queue, engine: Engine, connect: Connect, waits: Waits) -> None:
    """A key whose message an open transaction completes or retries is waited for, and then free or not."""
    _enqueue(engine)
    for verb in ("retry", "complete"):
        holder = connect()
        getattr(queue, verb)(holder, queue.dequeue(engine))
        rival = waits.start(_enqueue).blocked()
        holder.commit()
        assert rival.result().created is (verb == "complete")


def test_completion_in_the_same_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """A follow-up with the key of the message that the same session completes is not added: enqueues go first."""
    _enqueue(engine)
    [delivery] = queue.dequeue(engine)
    with Session(engine) as session:
        queue.complete(session, delivery)
        receipt = queue.enqueue(session, channel="a", payload=2, key="k")
        session.commit()
    assert receipt.created is False
    assert database.value("select count(*) from fq_message") == 0
