"""Functions that others made, in a schema of the search_path, are not called in place of PostgreSQL's."""

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Enqueue, Queue, RetryPolicy, Worker
from tests.fixtures.database import Database

pytestmark = pytest.mark.installed


def test_a_function_that_fits_better_is_not_called(engine: Engine, database: Database) -> None:
    """Any role that may create in ``public`` could run what it likes as the role of a worker or of an operator."""
    database.execute(
        "create function public.convert_to(text, text) returns bytea"
        " language plpgsql as $$ begin raise exception 'trapped'; end $$"
    )
    queue, done = Queue("documents"), []
    queue.handler("good")(lambda delivery: done.append(delivery.payload))

    @queue.handler("bad")
    def fail(_: object) -> None:
        raise ValueError

    queue.enqueue_many(
        engine, [Enqueue(channel="a", payload=1, kind="good"), Enqueue(channel="b", payload=2, kind="bad")]
    )
    Worker(engine, queue, retry=RetryPolicy(max_attempts=1)).run(drain=True)
    assert done == [1]
    assert [letter.channel for letter in queue.dead_letters.list(engine)] == ["b"]
    assert {stats.channel for stats in queue.channels(engine)} == {"a", "b"}
    queue.enqueue(engine, channel="a", payload=3, kind="good")
    assert [message.channel for message in queue.messages(engine)] == ["a"]
    [delivery] = queue.dequeue(engine)
    assert len(queue.admin.consumers(engine)) == 1
    queue.complete(engine, delivery)
