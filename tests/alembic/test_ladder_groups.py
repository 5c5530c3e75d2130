"""The step to version 2, as far as groups are concerned: its trigger, and the way back."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.database.drivers import sqlstate_of
from sqlalchemy_fairqueue.sql import assert_no_drift, downgrade_statements, upgrade_statements
from tests.alembic.test_ladder_schedules import change
from tests.fixtures.database import Database
from tests.worker.helpers import until

pytestmark = pytest.mark.installed

queue = Queue("documents")


def test_a_downgrade_refuses_open_groups(engine: Engine, database: Database) -> None:
    """A group that version 1 cannot finish stops the step and is counted; a finished one goes, and the trigger."""
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many([Enqueue(channel="a", payload=1)])
    with pytest.raises(DBAPIError, match="version 1 cannot finish the 1 groups that are open"):
        change(database, downgrade_statements, 2, 1)
    assert database.value("select fq_version()") == 2
    queue.complete(engine, queue.dequeue(engine))
    database.execute("select fq_fold_groups(100, 100, false)")
    change(database, downgrade_statements, 2, 1)
    assert database.value("select to_regclass('fq_group')::text") is None
    triggers = "select count(*) from pg_trigger where tgrelid = 'fq_message'::regclass and not tgisinternal"
    assert database.value(triggers) == 0
    with database.own.connect() as connection:
        assert_no_drift(connection)
    change(database, upgrade_statements, 1, 2)
    with database.own.connect() as connection:
        assert_no_drift(connection)


def test_a_downgrade_wants_a_new_snapshot_a_statement(engine: Engine, database: Database) -> None:
    """Under REPEATABLE READ it would drop a group that was made since the snapshot; it says so and drops nothing."""
    with database.own.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.exec_driver_sql("select 1 from fq_group")
        with Session(engine) as session, session.begin(), queue.group(session) as group:
            group.enqueue_many([Enqueue(channel="a", payload=1)])
        guard, step, *_ = downgrade_statements(2, 1, None)
        connection.exec_driver_sql(guard, execution_options={"no_parameters": True})
        with pytest.raises(DBAPIError, match="the downgrade runs in a repeatable read transaction") as refused:
            connection.exec_driver_sql(step, execution_options={"no_parameters": True})
    assert sqlstate_of(refused.value) == "QF003"
    assert queue.group_status(engine, group.id).pending == 1


def test_members_that_outlived_their_group(engine: Engine, database: Database) -> None:
    """Who deletes the rows of groups to go back keeps their members, which end as ordinary messages, before and after
    the way up again.
    """
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many(Enqueue(channel="a", payload=each) for each in range(2))
    database.execute("delete from fq_group")
    change(database, downgrade_statements, 2, 1)
    change(database, upgrade_statements, 1, 2)
    queue.complete(engine, queue.dequeue(engine, limit=9))
    assert database.value("select fq_groups_due()")
    database.execute("select fq_fold_groups(100, 100, false)")
    database.execute("select fq_fold_groups(100, 100, false)")
    assert not database.value("select fq_groups_due()")
    assert database.value("select count(*) from fq_group_note") == 0


def test_an_upgrade_waits_for_writers_of_messages(database: Database) -> None:
    """The trigger is made when no transaction that has written messages is open, which none of them waits for."""
    change(database, downgrade_statements, 2, 1)
    with ThreadPoolExecutor(1) as thread, create_engine(database.url, poolclass=NullPool).connect() as business:
        business.exec_driver_sql("insert into fq_signal (queue, channel_id) values ('documents', 1)")
        business.exec_driver_sql("delete from fq_message")
        step = thread.submit(change, database, upgrade_statements, 1, 2)
        tries = "select pid from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
        until(lambda: step.done() or database.value(tries), "the step tries again")
        assert not step.done()
        business.rollback()
        step.result()
    assert database.value("select fq_version()") == 2
