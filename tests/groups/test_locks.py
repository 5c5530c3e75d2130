"""Locks of groups: what waits for what, and what never does; transactions that have written and stay open make neither
folds nor statuses dearer, and no note is lost.
"""

from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, MessageCancelled, Queue
from sqlalchemy_fairqueue.errors import IsolationError
from sqlalchemy_fairqueue.unit_of_work.sessions import send_recorded
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.groups.conftest import Make, add, counts, fold, followups

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
        add(adding, queue, second, 5)
        send_recorded(adding)

        def others(rival: Engine) -> None:
            queue.complete(rival, third)
            with Session(rival) as session, session.begin():
                add(session, queue, fourth, 6)
            queue.complete(rival, fourth)
            with rival.begin() as connection:
                connection.exec_driver_sql("select fq_fold_groups(100, 100, false)")

        waits.unhindered(others)
        assert counts(queue.groups.status(engine, group)) == (5, 2, 0, 0, 3)
        ending.commit()
        adding.commit()
    fold(database)
    assert counts(queue.groups.status(engine, group)) == (6, 3, 0, 0, 3)


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


def test_a_cancel_of_a_group_needs_read_committed(engine: Engine, queue: Queue, make: Make) -> None:
    """An older snapshot would leave out what a member has just added: it is refused, and nothing is cancelled."""
    group = make(1)
    for level in "REPEATABLE READ", "SERIALIZABLE":
        with engine.connect().execution_options(isolation_level=level) as connection:
            with pytest.raises(IsolationError, match=level.lower()):
                queue.groups.cancel(connection, group)
            connection.rollback()
    assert counts(queue.groups.status(engine, group)) == (1, 0, 0, 0, 1)


def test_a_cancel_of_a_group_waits_for_a_member_that_adds(
    engine: Engine, queue: Queue, make: Make, waits: Waits
) -> None:
    """What the member has added is cancelled too, and afterwards it adds no more."""
    group = make(1)
    [first] = queue.dequeue(engine)
    with Session(engine) as session:
        add(session, queue, first, 2)
        send_recorded(session)
        cancelling = waits.start(lambda rival: queue.groups.cancel(rival, group)).blocked()
        session.commit()
        assert cancelling.result() == (1, 1)
        add(session, queue, first, 3)
        with pytest.raises(MessageCancelled):
            session.commit()
        session.rollback()
    queue.release(engine, first)
    assert counts(queue.groups.status(engine, group)) == (2, 0, 0, 2, 0)


_PROBLEMS = "select count(*) from fq_group where problem is not null"


def _folded(database: Database) -> tuple[int, list[int]]:
    """Fold until nothing is left. How many groups were tried, and how many had waited in vain after each call."""
    tried, waiting, more = 0, [0], True
    while more:
        [row] = database.rows("select finished, more from fq_fold_groups(100, 100, false)")
        more, tried = row.more, tried + row.finished
        waiting.append(database.value(_PROBLEMS))
    return tried, waiting


def test_follow_ups_whose_channel_is_being_made_wait_alone(
    engine: Engine, database: Database, queue: Queue, make: Make, clock: Clock
) -> None:
    """Folds wait once for a transaction that makes the channel of many follow-ups, whatever the lock_timeout of their
    caller; others are finished, and these are tried again together and ever later.
    """
    queue.configure_channel(engine, "there", weight=1)
    with Session(engine) as making:
        queue.enqueue(making.connection(), channel="reports", payload=1)
        groups = [make() for _ in range(5)]
        others = [make(then=Enqueue(channel=name, payload=1)) for name in ("a-new", "there", "z-new")]
        for pause in (1, 2, 4, 8, 16, 16):
            before = database.value("select fq_now()")
            tried, waiting = _folded(database)
            after = database.value("select fq_now()")
            assert (tried, waiting[-1]) == (1 + len(others), len(groups))
            assert "lock timeout" in str(queue.groups.status(engine, groups[4]).problem)
            assert all(queue.groups.status(engine, group).finished_at for group in others)
            for row in database.rows("select due_at from fq_group where problem is not null"):
                assert before <= row.due_at - pause * 1_000_000 <= after
            clock.advance(timedelta(seconds=pause))
            others = []
        making.commit()
    fold(database)
    assert database.value(_PROBLEMS) == 0
    assert followups(database) == ["report"] * len(groups)
    assert database.value("show lock_timeout") == "0"


def test_a_fold_ends_with_its_first_wait(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """What a fold has enqueued before it waits in vain for a key is committed then: no producer waits behind it."""
    keys = ["k1", "k2", "k3"]
    queue.configure_channel(engine, "b", weight=1)
    with Session(engine) as holding:
        for key in keys:
            queue.enqueue(holding.connection(), channel="b", payload=1, key=key)
        blocked = [make(then=Enqueue(channel="b", payload=2, key=key)) for key in keys]
        others = [
            make(then=Enqueue(channel="a-new", payload="first")),
            make(then=Enqueue(channel="b", payload="last", key="k4")),
        ]
        tried, waiting = _folded(database)
        assert tried == len(blocked) + len(others)
        assert waiting[-1] == len(blocked)
        assert max(later - earlier for earlier, later in pairwise(waiting)) == 1
        assert all(queue.groups.status(engine, group).finished_at for group in others)
        holding.commit()
    database.execute("update fq_group set due_at = 1 where due_at is not null")
    fold(database)
    assert all(queue.groups.status(engine, group).finished_at for group in blocked)


CALLS = (
    "select fq_groups_due()",
    "select * from fq_fold_groups(10000, 100, false)",
    "select * from fq_groups('documents', (select min(group_id::text)::uuid from fq_group), null, null, null, 1)",
)


def _buffers(connection: Connection, call: str) -> int:
    plan = connection.exec_driver_sql(f"explain (analyze, buffers, format json) {call}").scalar_one()[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _least_buffers(connection: Connection) -> list[int]:
    """What each call reads: the least of three, since what others do to the catalogs makes it plan once more."""
    return [min(_buffers(connection, call) for _ in range(3)) for call in CALLS]


def test_open_writers_do_not_make_folds_dearer(database: Database, connect: Connect, make: Make) -> None:
    """After 12,000 notes, with transactions that have written and stay open, whether there is work, a fold and a status
    read a few buffers for each of these transactions.
    """
    group, writers = make(1), 10
    connection = connect().execution_options(isolation_level="AUTOCOMMIT")
    before = _least_buffers(connection)
    for number in range(12):
        if number < writers:
            connect().exec_driver_sql("select pg_current_xact_id()")
        connection.exec_driver_sql(
            f"insert into fq_group_note (id, group_id, added, done) select {number * 1000} + i, '{group}', 1, 1"
            " from generate_series(1, 1000) i"
        )
        fold(database)
    assert all(now <= then + 5 * writers + 20 for now, then in zip(_least_buffers(connection), before, strict=True))


def test_what_open_transactions_note_is_folded_when_they_commit(
    engine: Engine, database: Database, queue: Queue, make: Make
) -> None:
    """Members that end in transactions that stay open while others are folded are counted as those commit, in any
    order.
    """
    group = make(*range(12))
    other = make(1)
    deliveries = queue.dequeue(engine, limit=13)
    sessions = []
    for delivery in deliveries[:-1]:
        session = Session(engine)
        queue.complete(session, delivery)
        send_recorded(session)
        sessions.append(session)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                f"insert into fq_group_note (id, group_id, added, done) values (0, '{other}', 1, 1)"
            )
        fold(database)
    Random(3).shuffle(sessions)  # noqa: S311 - repeatable
    for number, session in enumerate(sessions, 1):
        assert followups(database) == []
        session.commit()
        session.close()
        assert counts(queue.groups.status(engine, group))[1] == number
        assert database.value("select fq_groups_due()")
        fold(database)
        assert counts(queue.groups.status(engine, group))[1] == number
        assert not database.value("select fq_groups_due()")
    assert followups(database) == ["report"]


def test_a_transaction_that_folds_may_leave_notes_afterwards(engine: Engine, database: Database, make: Make) -> None:
    """Its id is older than those of others that have ended, and its later notes are found."""
    group = make(1)
    fold(database)
    note = f"insert into fq_group_note (id, group_id, added, done) values (%s, '{group}', 1, 1)"
    with engine.connect() as folding:
        folding.exec_driver_sql(note, (1,))
        for _ in range(3):
            with engine.begin() as connection:
                connection.exec_driver_sql("select pg_current_xact_id()")
        assert folding.exec_driver_sql("select folded from fq_fold_groups(100, 100, false)").scalar_one() == 1
        folding.exec_driver_sql(note, (2,))
        folding.commit()
    assert database.value("select fq_groups_due()")
    assert database.value("select folded from fq_fold_groups(100, 100, false)") == 1
