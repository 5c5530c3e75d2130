"""A snapshot is held while a queue works, and a consumer that begins then has little time for each statement."""

import subprocess
import sys

import pytest
from sqlalchemy import Engine, text

from sqlalchemy_fairqueue import Enqueue, Queue
from tests.fixtures.connections import Connect
from tests.fixtures.options import PATIENCE

_CONSUMER = """
import sys
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy_fairqueue import Queue

engine = create_engine(sys.argv[1])
# A connection makes its plans once: not what is measured.
assert len(Queue("another").dequeue(engine)) == 1
with engine.begin() as connection:
    connection.exec_driver_sql("set statement_timeout = '50ms'")
queue = Queue("documents")
for _ in range(30):
    try:
        print(len(queue.dequeue(engine)))
    except DBAPIError as error:
        print(type(error.orig).__name__)
"""


@pytest.mark.whole
def test_a_consumer_that_begins_under_a_held_snapshot(engine: Engine, connect: Connect) -> None:
    """After 200,000 messages of 500 channels were served, none of its first 30 calls fails at 50 ms a statement."""
    queue = Queue("documents")
    one_each = [Enqueue(channel=f"channel {number}", payload=number) for number in range(500)]
    queue.enqueue_many(engine, one_each)
    Queue("another").enqueue_many(engine, one_each)
    connect("REPEATABLE READ").execute(text("select count(*) from fq_channel_state"))
    for _ in range(200):
        for _ in range(2):
            queue.enqueue_many(engine, one_each)
        deliveries = queue.dequeue(engine, limit=1_000)
        assert len(deliveries) == 1_000
        queue.complete(engine, deliveries)
    # The signals that are left are no part of what is measured.
    assert len(queue.dequeue(engine)) == 1
    url = engine.url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-c", _CONSUMER, url],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE.total_seconds(),
    )
    assert done.stdout.split("\n") == [*["1"] * 30, ""]
