"""The retention of dead letters: how it is set, and what housekeeping then deletes."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.models import QueueConfig
from sqlalchemy_fairqueue.worker.duties import Housekeeping
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
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
    return [letter.message_id for letter in queue.dead_letters.list(engine)]


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
    assert _left(queue, engine) == [letters["long"], letters["default"], young]
    clock.advance(29 * DAY)
    _keep_house(engine, other)
    assert _left(queue, engine) == [letters["long"], young]
    clock.advance(300 * DAY)
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
        queue.dead_letters.redrive(other, [redriven])
        _keep_house(engine)
        other.commit()
    assert _left(queue, engine) == []
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


def test_bad_values(queue: Queue) -> None:
    """A value that cannot be kept is refused by name, and changes nothing."""
    wrong: list[tuple[Any, str]] = [
        (7, "dead_letter_retention is 7; give a timedelta"),
        (timedelta(), "dead_letter_retention is datetime.timedelta(0)"),
        ({"a": 7}, "dead_letter_retention of kind 'a' is 7; give a timedelta"),
        ({"": DAY}, "kind of dead_letter_retention '' has 0 bytes"),
        ({3: DAY}, "kind of dead_letter_retention is 3; give a str"),
    ]
    with Session() as session:
        for value, message in wrong:
            with pytest.raises(InvalidArgument) as caught:
                queue.configure(session, dead_letter_retention=value)
            assert message in str(caught.value)
        assert not session.in_transaction()


def test_too_many_kinds(queue: Queue, engine: Engine, database: Database) -> None:
    """The row of a queue stays small: a retention for a thousand kinds at most."""
    database.execute(
        "insert into fq_queue (name, dead_letter_retention_by_kind) "
        "select 'documents', jsonb_object_agg(n::text, 1) from generate_series(1, 1000) n"
    )
    with pytest.raises(InvalidArgument, match="queue documents has a retention of dead letters for 1001 kinds"):
        queue.configure(engine, dead_letter_retention={"one more": DAY})
    queue.configure(engine, dead_letter_retention={"7": DAY})
