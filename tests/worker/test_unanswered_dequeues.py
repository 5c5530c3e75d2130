"""Messages that a dequeue took whose answer was lost."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.database.calls import Call, Target
from sqlalchemy_fairqueue.database.deliveries import SettlementVerb, Token, held_tokens, settlement
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.values.messages import Deliveries
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import Busy, given_back, is_empty, send, until


def test_while_all_are_at_work(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dequeue took whose answer is lost is given back while no handler is free, so that others can do it."""
    lost: list[int] = []
    answer = Consumer.dequeue

    def dequeue(consumer: Consumer, connection: Connection, *asked: Any) -> Deliveries:
        batch = answer(consumer, connection, *asked)
        if not lost and any(delivery.payload == "lost" for delivery in batch):
            lost.extend(delivery.message_id for delivery in batch)
            consumer.forget_leases()
            raise ConnectionError("the connection is gone")
        return batch

    monkeypatch.setattr(Consumer, "dequeue", dequeue)
    queue.handler()(busy)
    send(engine, queue, "first")
    worker = start(queue, concurrency=2, lease=timedelta(hours=1), timings={"unanswered_after": 0.3})
    busy.begun()
    send(engine, queue, "lost", channel="a")
    until(lambda: lost, "an answer is lost")
    send(engine, queue, "second", channel="b")
    busy.begun(2)
    until(lambda: given_back(database) == 1, "the lost one is free for others")
    busy.go.set()
    until(lambda: is_empty(database), "all are done")
    assert worker.stats.failures == 1


def test_a_dequeue_that_comes_late(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a network delivered to the database long after the worker's lookup is given back by a later one.

    That may wake other workers.
    """
    lookups, notifies = [], []
    queue.handler()(busy)

    def look_up(connection: Connection, target: Target, lease_id: int) -> list[Token]:
        lookups.append(lease_id)
        return held_tokens(connection, target, lease_id)

    def give_back(target: Target, verb: SettlementVerb, *settled: Any, **given: Any) -> Call:
        if verb == "release":
            notifies.append(given["notify"])
        return settlement(target, verb, *settled, **given)

    monkeypatch.setattr("sqlalchemy_fairqueue.worker.fetcher.held_tokens", look_up)
    monkeypatch.setattr("sqlalchemy_fairqueue.worker.fetcher.settlement", give_back)
    send(engine, queue, 1)
    worker = start(queue, concurrency=1, lease=timedelta(hours=1), timings={"unanswered_after": 0.05})
    busy.begun()
    lease_id = database.value("select lease_id from fq_message")
    assert worker._runtime is not None
    worker._runtime.fetcher.note_unanswered(worker._runtime.queues[0], lease_id)
    worker._runtime.trigger.set()
    until(lambda: lookups, "the worker has looked it up")
    send(engine, queue, 2)
    late = Consumer(queue._target, queue.codec)
    late._leases = ((timedelta(seconds=1), lease_id),)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert late.dequeue(connection, 1, timedelta(seconds=1))
    until(lambda: database.value("select count(*) from fq_message where lease_id is null") == 1, "it is given back")
    assert notifies == [True]
    busy.go.set()
    until(lambda: is_empty(database), "both are done")


def test_a_server_that_goes_back(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy
) -> None:
    """What a server knows as leased that the worker has settled, as after a failover with loss, is given back, though
    the lease goes on for another handler and dequeues use a newer one.
    """
    queue.handler()(lambda _: None)
    queue.handler("long")(busy)
    send(engine, queue, 1, kind="long")
    worker = start(queue, concurrency=2, lease=timedelta(hours=1), timings={"unanswered_after": 0.05})
    busy.begun()
    database.execute("create table before as select * from fq_message")
    database.execute("update before set id = id + 1000000")
    database.execute("update fq_lease set expires_at = expires_at - 1800000000")
    send(engine, queue, "next")
    until(lambda: worker.stats.completed == 1, "another lease is used")
    database.execute("insert into fq_message overriding system value select * from before")
    database.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and query like '%fq_dequeue(%'"
    )
    busy.begun(2)
    busy.go.set()
    until(lambda: is_empty(database), "all are done")
