"""Requests to stop by roles: operators ask, consumers obey, within their bounds."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from sqlalchemy_fairqueue.errors import NotGranted
from tests.roles.conftest import SCHEMA, Installation
from tests.worker.helpers import retimed, until

QUEUE = Queue("mine", schema=SCHEMA, check_kinds=False)


def test_kinds_of_work(jobs: Installation) -> None:
    """An operator asks, and a worker with the grant of a consumer alone stops; no other role may ask."""
    served = Queue("mine", schema=SCHEMA)

    @served.handler()
    def handle(_: Delivery) -> None: ...

    operator, consumer = jobs.role("operator", "operator"), jobs.role("consumer", "consumer")
    others = [jobs.role(kind, kind).engine for kind in ("producer", "monitor")]
    with retimed(Worker(consumer.engine, served, name="w1"), stop_requests_every=0.02) as worker:
        for engine in (consumer.engine, *others):
            with pytest.raises(DBAPIError, match="permission denied"):
                QUEUE.admin.stop_worker(engine, "w1")
        assert worker.health().ready
        QUEUE.admin.stop_worker(operator.engine, "w1")
        until(lambda: not worker.health().ready, "it stops")
    found = jobs.database.value(f"select requested_by from {SCHEMA}.fq_stop_request")
    assert found == operator.name


def test_within_bounds(jobs: Installation) -> None:
    """An operator of one queue stops the workers of no other queue."""
    actor = jobs.role("bound")
    jobs.grant(actor.name, "operator", queues=["mine"])
    QUEUE.admin.stop_worker(actor.engine, "w1")
    with pytest.raises(NotGranted, match="queue 'other'"):
        Queue("other", schema=SCHEMA).admin.stop_worker(actor.engine, "w1")


def test_who_sees_requests(jobs: Installation) -> None:
    """Who monitors or operates sees which workers were asked to stop, within the bounds of the grant."""
    QUEUE.admin.stop_worker(jobs.role("operator", "operator").engine, "w1")
    bound = jobs.role("bound")
    jobs.grant(bound.name, "operator", queues=["mine"])
    lease = "insert into %s.fq_lease (id, queue, consumer, expires_at) values (1, 'mine', 'w1', 9000000000000000)"
    jobs.database.execute(lease % SCHEMA)
    asked = f"select consumer from {SCHEMA}.fq_consumers(:queue) where stop_requested_by is not null"
    for actor in (jobs.role("monitor", "monitor"), bound):
        with actor.engine.connect() as connection:
            assert connection.scalars(text(asked), {"queue": "mine"}).all() == ["w1"]
    for actor in (jobs.role("producer", "producer"), jobs.role("consumer", "consumer"), bound):
        with actor.engine.connect() as connection, pytest.raises(DBAPIError):
            connection.execute(text(asked), {"queue": "other"})
