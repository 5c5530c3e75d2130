"""Transactions that have written and stay open: they make neither folds nor statuses dearer, and no note is lost."""

from random import Random

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.unit_of_work.sessions import send_recorded
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.groups.conftest import Make, counts, fold, followups

pytestmark = pytest.mark.installed

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
