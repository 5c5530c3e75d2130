"""Locks of groups: what waits for what, and what never does."""

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, MessageCancelled, Queue
from sqlalchemy_fairqueue.testing import make_context
from sqlalchemy_fairqueue.unit_of_work import send_recorded
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.groups.conftest import Make, counts, fold, followups

pytestmark = pytest.mark.installed


def test_members_do_not_wait_for_each_other(
    engine: Engine, database: Database, queue: Queue, make: Make, waits: Waits
) -> None:
    """While a transaction that ended a member, and one that adds members, are open, others end and add members, groups
    are folded, and nobody waits.
    """
    group = make(1, 2, 3, 4)
    first, second, third, fourth = queue.dequeue(engine, limit=4)
    with Session(engine) as ending, Session(engine) as adding:
        queue.complete(ending, first)
        send_recorded(ending)
        found = make_context(second, queue=queue).with_session(adding).group
        assert found is not None
        found.enqueue_many([Enqueue(channel="a", payload=5)])
        send_recorded(adding)

        def others(rival: Engine) -> None:
            queue.complete(rival, third)
            with Session(rival) as session:
                own = make_context(fourth, queue=queue).with_session(session).group
                assert own is not None
                own.enqueue_many([Enqueue(channel="a", payload=6)])
                session.commit()
            queue.complete(rival, fourth)
            with rival.begin() as connection:
                connection.exec_driver_sql("select fq_fold_groups(100, 100, false)")

        waits.unhindered(others)
        assert counts(queue.group_status(engine, group)) == (5, 2, 0, 0, 3)
        ending.commit()
        adding.commit()
    fold(database)
    assert counts(queue.group_status(engine, group)) == (6, 3, 0, 0, 3)


def test_one_folds_at_a_time(engine: Engine, database: Database, make: Make, waits: Waits) -> None:
    """A fold that meets another one leaves it to that, and business transactions go on beside it."""
    make()
    fold(database)
    make()
    with engine.begin() as folding:
        assert folding.exec_driver_sql("select finished from fq_fold_groups(100, 100, false)").all() == [(1,)]

        def others(rival: Engine) -> None:
            with rival.begin() as connection:
                assert connection.exec_driver_sql("select from fq_fold_groups(100, 100, false)").all() == []

        waits.unhindered(others)
        folding.rollback()
    fold(database)
    assert followups(database) == ["report", "report"]


def test_a_cancel_of_a_group_waits_for_a_member_that_adds(
    engine: Engine, queue: Queue, make: Make, waits: Waits
) -> None:
    """What the member has added is cancelled too, and afterwards it adds no more."""
    group = make(1)
    [first] = queue.dequeue(engine)
    with Session(engine) as session:
        found = make_context(first, queue=queue).with_session(session).group
        assert found is not None
        found.enqueue_many([Enqueue(channel="a", payload=2)])
        send_recorded(session)
        cancelling = waits.start(lambda rival: queue.cancel_group(rival, group)).blocked()
        session.commit()
        assert cancelling.result() == (1, 1)
        found.enqueue_many([Enqueue(channel="a", payload=3)])
        with pytest.raises(MessageCancelled):
            session.commit()
        session.rollback()
    queue.release(engine, first)
    assert counts(queue.group_status(engine, group)) == (2, 0, 0, 2, 0)


def test_a_follow_up_whose_channel_is_being_made_waits_alone(
    engine: Engine, database: Database, queue: Queue, make: Make
) -> None:
    """With the lock_timeout of workers a fold does not stand behind a transaction that makes the channel; others go
    on, and it is tried again.
    """
    with Session(engine) as making:
        queue.enqueue_now(making, channel="reports", payload=1)
        group = make()
        with Session(engine) as session, session.begin(), queue.group(session) as other:
            pass
        with engine.begin() as folding:
            folding.exec_driver_sql("set local lock_timeout = '50ms'")
            folding.exec_driver_sql("select fq_fold_groups(100, 100, false)")
        assert "lock timeout" in str(queue.group_status(engine, group).problem)
        assert queue.group_status(engine, other.id).finished_at is not None
        making.commit()
    database.execute("update fq_group set due_at = 1 where due_at is not null")
    fold(database)
    assert queue.group_status(engine, group).problem is None
    assert followups(database) == ["report"]
