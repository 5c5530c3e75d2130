"""Requests of operators: workers stop as at a signal, and their log says who asked."""

import asyncio
import logging
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.worker.duties import Housekeeping
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import LONG_LEASE, Busy, auntil, call, given_back, is_empty, retimed, send, until

_SOON = {"stop_requests_every": 0.02}
_LOG = "sqlalchemy_fairqueue"


def _has_stopped(worker: Worker) -> bool:
    return worker.health().problems == ("it stops, or has stopped",)


async def test_a_handler_finishes(  # noqa: PLR0917 - fixtures
    make: MakeWorker, queue: Queue, engine: Engine, database: Database, busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose handlers are all busy hears of it, takes no more, and lets them finish; the rest is given back.

    Its run returns. The log says who asked, and the role where nobody is named.
    """
    caplog.set_level(logging.INFO, _LOG)
    queue.handler()(busy)
    worker = make(queue, name="w1", concurrency=1, lease=LONG_LEASE, timings=_SOON)
    role = database.value("select current_user")
    for number, by in enumerate(["dana", None], 1):
        busy.go.clear()
        send(engine, queue, *[1] * (3 - number))
        running = asyncio.create_task(call(worker.run))
        await auntil(lambda: len(busy.contexts) == number, "it is at work")  # noqa: B023
        with Session(engine) as session, session.begin():
            assert queue.admin.stop_worker(session, "w1", by=by)
            assert not busy.contexts[-1].stopping
        await auntil(lambda: busy.contexts[-1].stopping, "it is told")
        busy.go.set()
        await asyncio.wait_for(running, PATIENCE.total_seconds())
        assert f"worker w1 stops: {by or role!r} asked it to, at " in caplog.text
        assert (given_back(database), worker.stats.completed) == (1, number)


async def test_a_new_start(make: MakeWorker, handled: Queue, engine: Engine, database: Database) -> None:
    """A worker that is started anew under the name does not obey the old request."""
    worker = make(handled, name="w1", timings=_SOON)
    for _ in range(2):
        await call(worker.start)
        send(engine, handled, 1)
        await auntil(lambda: is_empty(database), "it works")
        handled.admin.stop_worker(engine, "w1")
        await auntil(lambda: not worker._is_busy(), "it has stopped")


def test_others_go_on(start: StartWorker, handled: Queue, engine: Engine, database: Database) -> None:
    """All workers of the name stop, also of several queues; those of other names, and other queues, do not."""
    mails = Queue("mails")
    mails.handler()(print)
    two = [start(handled, name="w1", timings=_SOON), start(mails, handled, name="w1", timings=_SOON)]
    others = [start(handled, name="w2", timings=_SOON), start(mails, name="w1", timings=_SOON)]
    handled.admin.stop_worker(engine, "w1")
    until(lambda: all(map(_has_stopped, two)), "both have stopped")
    send(engine, handled, 1)
    send(engine, mails, 1)
    until(lambda: is_empty(database), "the others work")
    assert not any(map(_has_stopped, others))


def test_before_any_lease(start: StartWorker, handled: Queue, engine: Engine) -> None:
    """A worker without a lease hears of it; the call says that it has seen none."""
    assert handled.admin.stop_worker(engine, "w1") is False
    worker = start(handled, name="w1", listen=False, poll_interval=timedelta(hours=1), timings=_SOON)
    until(lambda: worker.health().ready, "it runs")
    assert handled.admin.stop_worker(engine, "w1") is False
    until(lambda: _has_stopped(worker), "it has stopped")


def test_a_rollback_asks_nobody(start: StartWorker, handled: Queue, engine: Engine, database: Database) -> None:
    """Only the commit counts: a worker goes on that was asked in a transaction that rolled back."""
    worker = start(handled, name="w1", timings=_SOON)
    with Session(engine) as session:
        handled.admin.stop_worker(session, "w1")
        session.rollback()
    assert database.value("select count(*) from fq_stop_request") == 0
    send(engine, handled, 1)
    until(lambda: is_empty(database), "it works")
    assert not _has_stopped(worker)


def _made_old(database: Database, consumers: str) -> None:
    """Make the requests to these consumers an hour older."""
    database.execute(f"update fq_stop_request set requested_at = requested_at - 3600000001 where consumer {consumers}")


def test_old_requests_go(queue: Queue, engine: Engine, database: Database) -> None:
    """Housekeeping deletes requests that are an hour old, but for those that another transaction has locked."""
    for name in ("old", "older", "locked", "new"):
        queue.admin.stop_worker(engine, name)
    _made_old(database, "<> 'new'")
    with engine.begin() as connection:
        connection.exec_driver_sql("select from fq_stop_request where consumer = 'locked' for update")
        Housekeeping(retimed(Worker(engine, queue), pruned_at_once=1)._options).run()
    assert database.value("select string_agg(consumer, ' ' order by consumer) from fq_stop_request") == "locked new"


def test_a_request_locks_no_other(queue: Queue, engine: Engine, database: Database) -> None:
    """Two transactions that ask different workers wait for nothing, whoever was asked an hour ago."""
    for name in ("w1", "w2"):
        queue.admin.stop_worker(engine, name)
    _made_old(database, "in ('w1', 'w2')")
    with engine.begin() as connection:
        queue.admin.stop_worker(connection, "w1")
        locked = "select from fq_stop_request where consumer = 'w2' for update nowait"
        with engine.begin() as other:
            assert other.exec_driver_sql(locked).rowcount == 1


def test_the_number_deleted_at_once(database: Database) -> None:
    """A call of the housekeeping deletes 1 to 1000000 requests."""
    for limit in ("0", "1000001", "null"):
        with pytest.raises(DBAPIError, match=f"fq_prune_expired has limit {limit}"):
            database.execute(f"select fq_prune_expired({limit}::integer)")


def test_asked_again(queue: Queue, engine: Engine, database: Database) -> None:
    """Each request has another time, also where the clock stands still or goes back."""
    queue.admin.stop_worker(engine, "w1", by="dana")
    database.execute("update fq_stop_request set requested_at = requested_at + 3600000000")
    before = database.value("select requested_at from fq_stop_request")
    queue.admin.stop_worker(engine, "w1", by="otto")
    assert database.value("select requested_at from fq_stop_request") == before + 1
    assert database.value("select requested_by from fq_stop_request") == "otto"


@pytest.mark.parametrize(("consumer", "by"), [("", None), ("w1", ""), ("x" * 513, None), ("w1", "x" * 513)])
def test_bad_names(queue: Queue, engine: Engine, consumer: str, by: str | None) -> None:
    """Names that are none are refused before anything is sent."""
    with pytest.raises(InvalidArgument):
        queue.admin.stop_worker(engine, consumer, by=by)
