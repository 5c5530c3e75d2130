"""The retention of dead letters: how it is set, and what housekeeping then deletes."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.models import QueueConfig
from sqlalchemy_fairqueue.worker.duties import Housekeeping
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.worker.helpers import retimed

DAY = timedelta(days=1)


def _bury(queue: Queue, engine: Engine, kind: str = "default") -> int:
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1, kind=kind)
        session.commit()
    [delivery] = queue.dequeue(engine)
    queue.bury(engine, delivery, reason="over")
    return delivery.message_id


def _keep_house(engine: Engine, *queues: Queue, **timings: int) -> None:
    worker = Worker(engine, *queues or (Queue("documents"),))
    Housekeeping(retimed(worker, **timings)._options if timings else worker._options).run()


def _left(queue: Queue, engine: Engine) -> list[int]:
    return [letter.message_id for letter in queue.dead_letters(engine)]


def test_kept_for_ever(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Without a retention nothing is deleted; nor while it lasts."""
    letter = _bury(queue, engine)
    clock.advance(1000 * DAY)
    _keep_house(engine)
    queue.configure(engine, dead_letter_retention=1001 * DAY / 3)
    queue.configure(engine, dead_letter_retention=None)
    _keep_house(engine)
    assert _left(queue, engine) == [letter]


def test_deleted_after_the_retention(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A letter is deleted once it has been dead for longer than its queue keeps letters; younger ones stay."""
    queue.configure(engine, dead_letter_retention=7 * DAY)
    _bury(queue, engine)
    clock.advance(6 * DAY)
    young = _bury(queue, engine)
    _keep_house(engine)
    assert len(_left(queue, engine)) == 2
    clock.advance(1.5 * DAY)
    _keep_house(engine)
    assert _left(queue, engine) == [young]


def test_by_kind(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A kind has a retention of its own, shorter or longer than that of the others."""
    queue.configure(engine, dead_letter_retention={"brief": DAY, "long": 300 * DAY, None: 30 * DAY})
    letters = {kind: _bury(queue, engine, kind) for kind in ("brief", "long", "other")}
    clock.advance(2 * DAY)
    _keep_house(engine)
    assert _left(queue, engine) == [letters["long"], letters["other"]]
    clock.advance(30 * DAY)
    _keep_house(engine)
    assert _left(queue, engine) == [letters["long"]]
    clock.advance(300 * DAY)
    _keep_house(engine)
    assert _left(queue, engine) == []


def test_a_kind_alone(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Where only kinds have a retention, letters of the others are kept."""
    queue.configure(engine, dead_letter_retention={"brief": DAY})
    _bury(queue, engine, "brief")
    other = _bury(queue, engine)
    clock.advance(300 * DAY)
    _keep_house(engine)
    assert _left(queue, engine) == [other]


def test_other_queues(queue: Queue, engine: Engine, clock: Clock) -> None:
    """The retention of a queue holds for its own letters, whichever queue the worker serves."""
    other = Queue("other")
    queue.configure(engine, dead_letter_retention=DAY)
    _bury(queue, engine)
    kept = _bury(other, engine)
    clock.advance(2 * DAY)
    _keep_house(engine, other)
    assert (_left(queue, engine), _left(other, engine)) == ([], [kept])


def test_more_than_a_transaction_takes(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A round deletes all that is due, a limited number in each transaction."""
    queue.configure(engine, dead_letter_retention=DAY)
    for _ in range(5):
        _bury(queue, engine)
    clock.advance(2 * DAY)
    _keep_house(engine, pruned_at_once=2)
    assert _left(queue, engine) == []


def test_letters_in_use(queue: Queue, engine: Engine, clock: Clock, connect: Connect) -> None:
    """A letter that a transaction redrives is passed by, and nobody waits."""
    queue.configure(engine, dead_letter_retention=DAY)
    redriven, _ = _bury(queue, engine), _bury(queue, engine)
    clock.advance(2 * DAY)
    with connect() as other:
        queue.redrive(other, [redriven])
        _keep_house(engine)
        other.commit()
    assert _left(queue, engine) == []
    assert [delivery.message_id for delivery in queue.dequeue(engine)] == [redriven]


def test_two_workers_at_once(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """Two rounds at the same time delete everything that is due, once."""
    queue.configure(engine, dead_letter_retention=DAY)
    for _ in range(20):
        _bury(queue, engine)
    clock.advance(2 * DAY)
    rounds = [threading.Thread(target=_keep_house, args=(engine,), kwargs={"pruned_at_once": 1}) for _ in range(2)]
    for one in rounds:
        one.start()
    for one in rounds:
        one.join()
    _keep_house(engine)
    assert database.value("select count(*) from fq_dead_letter") == 0


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


def test_recorded_on_a_session(queue: Queue, engine: Engine, database: Database) -> None:
    """It belongs to the caller's transaction."""
    with Session(engine) as session:
        queue.configure(session, dead_letter_retention=DAY)
        session.rollback()
        queue.configure(session, dead_letter_retention={"brief": DAY})
        session.commit()
    assert database.rows("select dead_letter_retention as kept from fq_queue")[0].kept is None


def test_concurrent_changes_both_last(queue: Queue, engine: Engine, connect: Connect, waits: Waits) -> None:
    """Of two transactions that change different kinds, both changes last."""
    first = connect()
    queue.configure(first, dead_letter_retention={"a": DAY})
    second = waits.start(lambda rival: queue.configure(rival, dead_letter_retention={"b": DAY})).blocked()
    first.commit()
    second.result()
    with Session(engine) as session:
        kinds = session.scalars(select(QueueConfig.dead_letter_retention_by_kind)).one()
    assert kinds is not None
    assert sorted(kinds) == ["a", "b"]


async def test_awaited(queue: Queue, async_engine: AsyncEngine, database: Database) -> None:
    """The awaited twin sets it, too."""
    await queue.aconfigure(async_engine, dead_letter_retention=DAY)
    assert database.value("select dead_letter_retention from fq_queue") == 86_400_000_000


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "dead_letter_retention is 7; give a timedelta"),
        (timedelta(), "dead_letter_retention is datetime.timedelta(0)"),
        ({"a": 7}, "dead_letter_retention of kind 'a' is 7; give a timedelta"),
        ({"": DAY}, "kind of dead_letter_retention '' has 0 bytes"),
        ({3: DAY}, "kind of dead_letter_retention is 3; give a str"),
    ],
)
def test_bad_values(queue: Queue, engine: Engine, database: Database, value: Any, message: str) -> None:
    """A value that cannot be kept is refused by name, and changes nothing."""
    with pytest.raises(InvalidArgument) as caught:
        queue.configure(engine, dead_letter_retention=value)
    assert message in str(caught.value)
    assert database.value("select count(*) from fq_queue") == 0


def test_too_many_kinds(queue: Queue, engine: Engine, database: Database) -> None:
    """The row of a queue stays small: a retention for a thousand kinds at most."""
    database.execute(
        "insert into fq_queue (name, dead_letter_retention_by_kind) "
        "select 'documents', jsonb_object_agg(n::text, 1) from generate_series(1, 1000) n"
    )
    with pytest.raises(InvalidArgument, match="queue documents has a retention of dead letters for 1001 kinds"):
        queue.configure(engine, dead_letter_retention={"one more": DAY})
    queue.configure(engine, dead_letter_retention={"7": DAY})
