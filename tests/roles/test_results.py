"""Results and roles: consumers keep them, producers read and wait for them within their bounds."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import MessageFailed, Queue, ResultCancelled, ResultNotReady
from sqlalchemy_fairqueue.errors import NotGranted
from tests.fixtures.options import PATIENCE
from tests.roles.conftest import SCHEMA, Installation
from tests.worker.helpers import until

QUEUE = Queue("mine", schema=SCHEMA)
_DENIED = "42501"


@pytest.fixture(autouse=True)
def kept(jobs: Installation) -> None:
    """The queue keeps results."""
    QUEUE.configure(jobs.owner, result_retention=timedelta(hours=1))


def test_each_does_its_part(jobs: Installation) -> None:
    """A producer enqueues, waits, cancels and reads; a consumer completes and buries; neither does the other's part."""
    producer, consumer = jobs.role("producer", "producer"), jobs.role("consumer", "consumer")
    ids = [QUEUE.enqueue(producer.engine, channel="a", payload=each).message_id or 0 for each in range(3)]
    deliveries = QUEUE.dequeue(consumer.engine, limit=2)
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(QUEUE.result, producer.engine, one, timeout=PATIENCE) for one in ids[:2]]
        until(lambda: jobs.database.value(f"select count(*) from {SCHEMA}.fq_result_wait") == 2, "both wait")
        QUEUE.complete(consumer.engine, deliveries[0], result="done")
        QUEUE.bury(consumer.engine, deliveries[1], reason="no")
        assert waiting[0].result(PATIENCE.total_seconds()) == "done"
        assert isinstance(waiting[1].exception(PATIENCE.total_seconds()), MessageFailed)
    QUEUE.cancel(producer.engine, ids[2])
    with pytest.raises(ResultCancelled):
        QUEUE.result(producer.engine, ids[2])
    with pytest.raises(DBAPIError) as refused:
        QUEUE.result(consumer.engine, ids[0])
    assert getattr(refused.value.orig, "sqlstate", None) == _DENIED
    producer.engine.dispose()


def test_within_bounds(jobs: Installation) -> None:
    """A producer of one channel reads the results of that channel alone, whatever has become of the others."""
    actor = jobs.role("bound")
    jobs.grant(actor.name, "producer", queues=["mine"], channels=["a"])
    own = QUEUE.enqueue(actor.engine, channel="a", payload=1).message_id or 0
    theirs = [QUEUE.enqueue(jobs.owner, channel="b", payload=each).message_id or 0 for each in range(3)]
    with pytest.raises(ResultNotReady):
        QUEUE.result(actor.engine, own, timeout=timedelta(milliseconds=1))
    deliveries = {one.message_id: one for one in QUEUE.dequeue(jobs.owner, limit=4)}
    QUEUE.complete(jobs.owner, deliveries[own], result=7)
    QUEUE.complete(jobs.owner, deliveries[theirs[0]], result="secret")
    QUEUE.bury(jobs.owner, deliveries[theirs[1]], reason="secret")
    assert QUEUE.result(actor.engine, own) == 7
    for message_id in theirs:
        with pytest.raises(NotGranted, match="channel 'b'"):
            QUEUE.result(actor.engine, message_id)
    with pytest.raises(NotGranted, match="for queue 'other'"):
        Queue("other", schema=SCHEMA).result(actor.engine, own + 1000)
    actor.engine.dispose()
