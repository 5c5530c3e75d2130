"""The step to version 2, as far as results are concerned, under messages of before, and the way back."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue import Queue, ResultNotKept
from sqlalchemy_fairqueue.sql import assert_no_drift, downgrade_statements, upgrade_statements
from tests.alembic.test_ladder_schedules import change
from tests.fixtures.database import Database

pytestmark = pytest.mark.installed

queue = Queue("documents")


def test_results_go_and_come(engine: Engine, database: Database) -> None:
    """A downgrade drops what is kept, and nothing else; after the way up again the queue keeps results as before."""
    queue.configure(engine, results=timedelta(days=1))
    first, second, third = (queue.enqueue_now(engine, channel="a", payload=each) or 0 for each in range(3))
    deliveries = queue.dequeue(engine, limit=2)
    queue.complete(engine, deliveries[0], result="before")
    assert queue.result(engine, first) == "before"
    engine.dispose()

    change(database, downgrade_statements, 2, 1)
    assert database.value("select to_regclass('fq_result')::text") is None
    # A consumer of version 1 goes on.
    database.execute(
        "select fq_complete('documents', array_agg(id), array_agg(ctid), array_agg(lease_id), array_agg(deliveries))"
        " from fq_message where id = :id",
        id=second,
    )
    with database.own.connect() as connection:
        assert_no_drift(connection)
    change(database, upgrade_statements, 1, 2)
    with database.own.connect() as connection:
        assert_no_drift(connection)

    again = create_engine(database.url)
    queue.complete(again, queue.dequeue(again), result="after")
    assert queue.result(again, third) == "after"
    for message_id in (first, second):
        with pytest.raises(ResultNotKept):
            queue.result(again, message_id)
    again.dispose()
