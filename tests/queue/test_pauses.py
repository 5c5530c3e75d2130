"""Pausing and limiting a queue, from sessions, connections and engines."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.errors import IsolationError, UnknownChannel
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.queue.seeds import seed


def _taken(queue: Queue, engine: Engine, limit: int = 10) -> str:
    batch = queue.dequeue(engine, limit=limit)
    queue.complete(engine, batch)
    return "".join(sorted(delivery.payload for delivery in batch))


@pytest.mark.parametrize("channel", [None, "a"])
def test_on_a_session(queue: Queue, engine: Engine, channel: str | None) -> None:
    """On a session a pause and a resumption are recorded: they take effect with the COMMIT, or never."""
    seed(queue, engine, "a")
    with Session(engine) as session:
        queue.pause(session, channel)
        session.rollback()
        assert _taken(queue, engine) == "a"
        seed(queue, engine, "a")
        queue.pause(session, channel)
        session.commit()
        assert _taken(queue, engine) == ""
        queue.resume(session, channel)
        assert _taken(queue, engine) == ""
        session.commit()
    assert _taken(queue, engine) == "a"


def test_a_mistyped_channel(queue: Queue, engine: Engine, database: Database) -> None:
    """Neither pause nor resume makes a channel: they say that there is none, from a session at its COMMIT."""
    seed(queue, engine, "a")
    advices = {"pause": "pause(..., new=True) makes the channel", "resume": "; correct the name"}
    for name, advice in advices.items():
        verb: Any = getattr(queue, name)
        with pytest.raises(UnknownChannel) as refusal:
            verb(engine, "b")
        assert (refusal.value.queue, refusal.value.channel) == ("documents", "b")
        assert f"cannot {name} channel 'b' of queue 'documents'" in str(refusal.value)
        assert str(refusal.value).endswith(advice)
        with Session(engine) as session:
            queue.enqueue(session, channel="c", payload="c")
            verb(session, "b")
            with pytest.raises(UnknownChannel):
                session.commit()
    assert database.value("select string_agg(name, '') from fq_channel") == "a"


def test_a_new_channel(queue: Queue, engine: Engine) -> None:
    """A tenant can be stopped before its first message, and in the transaction that has it."""
    for channel in "ab":
        queue.pause(engine, channel, new=True)
    with Session(engine) as session:
        queue.pause(session, "c")
        queue.enqueue(session, channel="c", payload="c")
        session.commit()
    seed(queue, engine, *"abd")
    assert _taken(queue, engine) == "d"


def test_the_last_word_of_a_transaction_counts(queue: Queue, engine: Engine) -> None:
    """What is asked of one channel in one transaction is done in the order in which it was asked for."""
    seed(queue, engine, "a")
    with Session(engine) as session:
        queue.resume(session, "a")
        queue.pause(session, "a")
        session.commit()
        assert _taken(queue, engine) == ""
        queue.pause(session, "a")
        queue.resume(session, "a")
        session.commit()
    assert _taken(queue, engine) == "a"


def test_a_limit_wants_read_committed(queue: Queue, connect: Connect, engine: Engine) -> None:
    """A limit or a rate of a queue is refused under an older snapshot, which would miss messages that are out."""
    limits: list[dict[str, Any]] = [{"max_concurrency": 1}, {"rate": "5/s"}]
    for limit, level in product(limits, ("REPEATABLE READ", "SERIALIZABLE")):
        with pytest.raises(IsolationError, match="READ COMMITTED"):
            queue.configure(connect(level), **limit)
    stats = queue.stats(engine)
    assert (stats.max_concurrency, stats.rate) == (None, None)


def test_everything_in_one_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """Configuration of all kinds, recorded in any order, is sent in lock order and takes effect together."""
    seed(queue, engine, *"ab")
    with Session(engine) as session:
        queue.configure(session, max_concurrency=5)
        queue.pause(session, "b")
        queue.configure_channel(session, "a", ChannelPolicy(max_concurrency=1))
        purged = queue.purge(session, "a")
        queue.pause(session)
        queue.configure(session, history=True, history_retention=timedelta(days=3), defaults=ChannelPolicy(weight=4))
        session.commit()
    assert purged.purged == 1
    row = database.rows("select * from fq_queue")[0]
    assert (row.max_concurrency, row.history, row.defaults["weight"]) == (5, True, 4)
    assert row.history_retention == 3 * 86_400_000_000
    assert row.paused_at is not None
    assert [(one.channel, one.paused_at is None) for one in queue.channels(engine)] == [("a", True), ("b", False)]


def test_limits_of_a_queue_and_its_channels_wait_in_one_order(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits
) -> None:
    """A transaction that limits a queue and a channel waits for the queue before it has locked the channel."""
    limited = ChannelPolicy(max_concurrency=1)
    queue.configure(engine, history=False)
    queue.configure_channel(engine, "a", limited)
    holder = connect()
    queue.configure(holder, history=True)

    def configure(rival: Engine) -> None:
        with Session(rival) as session:
            queue.configure_channel(session, "a", limited)
            queue.configure(session, max_concurrency=2)
            session.commit()

    rival = waits.start(configure).blocked()
    waits.unhindered(lambda third: queue.configure_channel(third, "a", limited))
    holder.commit()
    rival.result()
    assert queue.stats(engine).max_concurrency == 2
