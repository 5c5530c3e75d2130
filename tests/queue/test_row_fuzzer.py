"""Fuzzer of rows: whatever a producer can insert, no queue stops and nobody's message is delayed.

FAIRQUEUE_FUZZ_ROWS is the number of rows, FAIRQUEUE_FUZZ_SEED the seed.
"""

import os
from datetime import timedelta

import psycopg
from sqlalchemy import Engine

from sqlalchemy_fairqueue import BytesCodec, Delivery, PayloadError, Queue, RetryPolicy
from tests.fixtures.database import Database
from tests.queue.row_grammar import Grammar, send
from tests.worker.conftest import StartWorker, start
from tests.worker.helpers import until

__all__ = ["start"]

_ROWS = int(os.environ.get("FAIRQUEUE_FUZZ_ROWS", "100"))
_SEED = int(os.environ.get("FAIRQUEUE_FUZZ_SEED", "1"))
_ROUND = 20


def _look(queue: Queue, engine: Engine) -> None:
    """All reads of a queue, each of which returns every row that it concerns."""
    queue.stats(engine)
    for channel in queue.channels(engine):
        assert channel.queue == "documents"
    assert all(one.message_id > 0 for one in queue.dead_letters.list(engine, limit=1000))


def _read(delivery: Delivery) -> None:
    try:
        assert delivery.payload == delivery.content
    except PayloadError:
        assert delivery.headers is None


def test_no_row_stops_a_queue(engine: Engine, database: Database, start: StartWorker) -> None:
    """After each round of rows the next dequeue delivers a message of somebody else, all reads work, and at the end a
    worker handles what is due.
    """
    queue = Queue("documents", codec=BytesCodec())
    grammar = Grammar(_SEED)
    taken = 0
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        for number in range(0, _ROWS, _ROUND):
            taken += sum(send(connection, grammar.row()) for _ in range(_ROUND))
            bystander = queue.enqueue(engine, channel="bystander", kind="work", payload=b"?").message_id
            batch = queue.dequeue(engine, limit=1000)
            assert bystander in {one.message_id for one in batch}, f"seed {_SEED}, rows up to {number + _ROUND}"
            for delivery in batch:
                _read(delivery)
                match grammar.random.randrange(4):
                    case 0:
                        queue.retry(engine, delivery, error=grammar.text())
                    case 1:
                        queue.bury(engine, delivery, reason=grammar.text(), error=grammar.text())
                    case 2:
                        queue.release(engine, delivery)
                    case _:
                        queue.complete(engine, delivery)
            _look(queue, engine)
    assert 0.2 * _ROWS < taken < 0.9 * _ROWS, "the grammar makes rows of both kinds"

    handled: list[int] = []
    queue.handler("work", retry=RetryPolicy(first=timedelta(), max_attempts=1))(
        lambda delivery: handled.append(delivery.message_id)
    )
    worker = start(queue)
    last = queue.enqueue(engine, channel="bystander", kind="work", payload=b"!").message_id
    until(lambda: last in handled, "the worker has handled a message that came last")
    ready = "select count(*) from fq_message where kind = 'work' and lease_id is null and dequeue_at <= fq_now()"
    until(lambda: not database.value(ready), "the worker has handled all that is due")
    assert worker.stats.failures == 0
    _look(queue, engine)
    assert all(one.problem is None for one in queue.channels(engine))
