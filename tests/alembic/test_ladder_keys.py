"""The step to version 2, as far as periods of keys are concerned, under messages of before, and the way back."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.sql import assert_no_drift, downgrade_statements, upgrade_statements
from tests.alembic.test_ladder_schedules import change
from tests.fixtures.database import Database

pytestmark = pytest.mark.installed

HOUR = timedelta(hours=1)


def test_periods_go_and_come(engine: Engine, database: Database) -> None:
    """A downgrade ends the periods and keeps the messages; after the way up again keys get periods as before."""
    queue = Queue("documents")
    queue.enqueue_now(engine, channel="a", payload=1, key="ended", unique_for=HOUR)
    queue.complete(engine, queue.dequeue(engine))
    queue.enqueue_now(engine, channel="a", payload=2, key="living", unique_for=HOUR, unique_from="completion")
    engine.dispose()

    change(database, downgrade_statements, 2, 1)
    assert database.value("select to_regclass('fq_key_period')::text") is None
    with database.own.connect() as connection:
        assert_no_drift(connection)
    change(database, upgrade_statements, 1, 2)
    with database.own.connect() as connection:
        assert_no_drift(connection)

    again = create_engine(database.url)
    words: dict[str, Any] = {"channel": "a", "payload": 3}
    assert queue.enqueue_now(again, **words, key="living", unique_for=HOUR) == 2
    queue.complete(again, queue.dequeue(again))
    for key in ("ended", "living"):
        message_id = queue.enqueue_now(again, **words, key=key, unique_for=HOUR)
        assert message_id is not None
        assert message_id > 2
        queue.complete(again, queue.dequeue(again))
        assert queue.enqueue_now(again, **words, key=key, unique_for=HOUR) == message_id
    again.dispose()


def test_a_message_of_before_ends_in_version_1(engine: Engine, database: Database) -> None:
    """A message whose period was to begin at its end ends without one in version 1."""
    queue = Queue("documents")
    queue.enqueue_now(engine, channel="a", payload=1, key="k", unique_for=HOUR, unique_from="completion")
    queue.dequeue(engine)
    engine.dispose()
    change(database, downgrade_statements, 2, 1)
    database.execute(
        "select fq_complete('documents', array_agg(id), array_agg(ctid), array_agg(lease_id), array_agg(deliveries))"
        " from fq_message"
    )
    assert database.value("select count(*) from fq_message") == 0
