"""Costs that handlers and workers tell: the channel is charged what its messages cost in truth."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Bury, Context, Delivery, InvalidArgument, Queue, Retry
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import charged, drained, send, until


def test_a_handler_says_what_it_cost(queue: Queue, engine: Engine, database: Database, drain: MakeWorker) -> None:
    """However it ends, its channel is charged that in place of what was declared."""
    queue.configure(engine, fair_by="cost")
    outcomes: list[Any] = [None, Retry(delay=timedelta(hours=1)), Bury("bad")]
    send(engine, queue, *range(3), cost=20)

    @queue.handler()
    def handle(delivery: Delivery, context: Context) -> Any:
        assert context.cost is None
        context.cost = 412
        return outcomes[delivery.payload]

    drain(queue)
    assert charged(database) == 3 * 412


@pytest.mark.parametrize("cost", [-1, 10**9 + 1, 1.5, "7", True])
def test_a_bad_cost_is_refused(cost: Any) -> None:
    """It names the value, and the cost stays as it was."""
    context = Context(cast("Any", SimpleNamespace(cost=3)))
    with pytest.raises(InvalidArgument, match="cost"):
        context.cost = cost
    assert context.cost == 3
    context.cost = None
    assert context.cost is None


def test_a_worker_measures_what_is_shared_by_seconds(handled: Queue, engine: Engine, database: Database) -> None:
    """A handler that takes a moment is charged that, and not the hour that was declared for it."""
    handled.configure(engine, fair_by="seconds")
    handled.enqueue(engine, channel="a", payload=1, cost=3_600_000)
    drained(engine, handled)
    assert 1 <= charged(database) < 3_600_000


@pytest.mark.parametrize("way", ["return", "session", "verb", "told", "stop"])
def test_a_handler_is_charged_while_it_runs(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, way: str
) -> None:
    """Its channel is charged two seconds ahead; however it is settled, all together is what it took."""
    queue.configure(engine, fair_by="seconds", history=True)
    send(engine, queue, 1)
    end = threading.Event()

    def handle(delivery: Delivery) -> None:
        end.wait(PATIENCE.total_seconds())
        if way == "verb":
            queue.complete(engine, delivery)

    def handle_in_session(_: Delivery, context: Context, session: Session) -> None:
        session.connection()
        end.wait(PATIENCE.total_seconds())
        if way == "told":
            context.cost = 77

    queue.handler()(handle_in_session if way in {"session", "told"} else handle)
    worker = start(queue, timings={"charge_every": 0.05})
    until(lambda: charged(database) > 2_500, "it is charged more than the dequeue did")
    if way == "stop":
        worker.stop(timedelta())
    end.set()
    until(lambda: database.value("select count(*) from fq_history"), "it is settled")
    cost = database.value("select cost from fq_history")
    assert cost == 77 if way == "told" else cost >= 500
    assert charged(database) == cost


def test_what_did_not_begin_costs_nothing(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """What a worker took ahead and gives back was worked on by nobody."""
    queue.configure(engine, fair_by="seconds", history=True)
    send(engine, queue, *range(1_000))
    many = threading.Event()

    @queue.handler()
    def handle(delivery: Delivery, context: Context) -> None:
        if delivery.payload >= 100 and database.value("select count(*) > 1 from fq_message where lease_id is not null"):
            many.set()
            until(lambda: context.stopping, "it is stopped")

    worker = start(queue, concurrency=1)
    assert many.wait(PATIENCE.total_seconds())
    worker.stop()
    costs = "select array_agg(distinct cost) from fq_history where outcome = 'released'"
    assert database.value(costs) == [0]
