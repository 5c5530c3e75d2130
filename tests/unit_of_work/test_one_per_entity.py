"""The recipe "one message per entity": no change is lost, and no two handlers work on an entity at once."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, LeaseLost, Queue, Worker
from sqlalchemy_fairqueue.unit_of_work.sessions import recorded
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.unit_of_work.test_recipes import Run, run

__all__ = ["run"]


@pytest.fixture
def page(run: Run, engine: Engine) -> Any:
    """The names of the recipe, with one customer, without the messages of the recipes before it."""
    page = run("def rename_customer")
    page.queue.purge(engine, "periodic")
    with Session(engine) as session, session.begin():
        session.add(page.Customer(customer_id=1, tenant="ada", name="first"))
    return page


def _rename(page: Any, name: str, engine: Engine) -> str | None:
    """Change the customer; the outcome of the enqueue."""
    with Session(engine) as session, session.begin():
        page.rename_customer(session, 1, name)
        [operation] = recorded(session)
    return _outcome(operation)


def _outcome(operation: Any) -> str | None:
    outcome: str | None = operation.receipt.outcome
    return outcome


def _take(page: Any, engine: Engine) -> Delivery:
    [delivery] = page.queue.dequeue(engine)
    assert isinstance(delivery, Delivery)
    return delivery


def _handle(page: Any, delivery: Delivery, engine: Engine) -> None:
    """As a worker does with a handler that takes a session."""
    with Session(engine) as session, session.begin():
        page.index_customer(delivery, session)
        page.queue.complete(session, delivery)


def _indexed(page: Any, engine: Engine) -> str | None:
    with Session(engine) as session:
        return session.scalar(select(page.SearchEntry.name))


def test_a_change_while_the_handler_has_the_lock(page: Any, engine: Engine, waits: Waits) -> None:
    """The producer waits for the handler's COMMIT, which frees the key too: a second message is added."""
    assert _rename(page, "old", engine) == "created"
    delivery = _take(page, engine)
    with Session(engine) as session, session.begin():
        page.index_customer(delivery, session)
        page.queue.complete(session, delivery)
        producer = waits.start(partial(_rename, page, "new")).blocked()
    assert producer.result() == "created"
    assert _indexed(page, engine) == "old"
    _handle(page, _take(page, engine), engine)
    assert _indexed(page, engine) == "new"


def test_a_change_before_the_handler_has_the_lock(page: Any, engine: Engine, waits: Waits) -> None:
    """The handler waits for the producer's COMMIT, and sees the change for which no message was added."""
    assert _rename(page, "old", engine) == "created"
    delivery = _take(page, engine)
    with Session(engine) as session, session.begin():
        page.rename_customer(session, 1, "new")
        [operation] = recorded(session)
        handler = waits.start(partial(_handle, page, delivery)).blocked()
    assert _outcome(operation) == "duplicate"
    handler.result()
    assert _indexed(page, engine) == "new"
    assert page.queue.dequeue(engine) == []


@pytest.mark.parametrize("how", ["retry", "bury"])
def test_a_change_after_a_handler_has_failed(page: Any, engine: Engine, how: str) -> None:
    """The lock is free and the key is not: the change is seen when the message is tried again, or redriven."""
    assert _rename(page, "old", engine) == "created"
    delivery = _take(page, engine)
    with Session(engine) as session:
        page.index_customer(delivery, session)
        session.rollback()
    assert _rename(page, "new", engine) == "duplicate"
    if how == "retry":
        page.queue.retry(engine, delivery)
    else:
        page.queue.bury(engine, delivery)
        page.queue.dead_letters.redrive(engine)
    _handle(page, _take(page, engine), engine)
    assert _indexed(page, engine) == "new"


def test_a_lost_lease(page: Any, engine: Engine, waits: Waits, database: Database) -> None:
    """Another worker that gets the message waits for the lock; the first can commit nothing."""
    _rename(page, "new", engine)
    delivery = _take(page, engine)
    with Session(engine) as session:
        page.index_customer(delivery, session)
        session.flush()
        database.execute("update fq_lease set expires_at = fq_now()")
        again = _take(SimpleNamespace(queue=Queue(page.queue.name)), engine)
        assert again.message_id == delivery.message_id
        other = waits.start(partial(_handle, page, again)).blocked()
        page.queue.complete(session, delivery)
        with pytest.raises(LeaseLost):
            session.commit()
        session.rollback()
    other.result()
    assert _indexed(page, engine) == "new"


def test_many_producers_and_workers(page: Any, engine: Engine) -> None:
    """Whatever four producers change while two workers follow, the last change of each customer is seen in the end."""
    customers, changes = range(2, 5), 30
    with Session(engine) as session, session.begin():
        session.add_all(page.Customer(customer_id=number, tenant="ada", name="") for number in customers)
    at_work: Counter[int] = Counter()
    at_once: list[int] = []
    runs: Counter[int] = Counter()
    own = Lock()

    def count(context: Any, proceed: Callable[[], Any]) -> Any:
        customer = context.delivery.payload["customer"]
        with own:
            at_work[customer] += 1
            runs[customer] += 1
            at_once.append(at_work[customer])
        try:
            return proceed()
        finally:
            with own:
                at_work[customer] -= 1

    page.queue.middleware(count)

    def produce(producer: int) -> None:
        for number in range(changes):
            with Session(engine) as session, session.begin():
                page.rename_customer(session, customers[(producer + number) % len(customers)], f"{producer}-{number}")

    workers = [Worker(engine, page.queue, concurrency=3, name=f"worker {number}") for number in range(2)]
    with workers[0], workers[1], ThreadPoolExecutor(4) as producers:
        list(producers.map(produce, range(4)))
    Worker(engine, page.queue).run(drain=True)
    with Session(engine) as session:
        names = {one.customer_id: one.name for one in session.scalars(select(page.Customer)) if one.name != "first"}
        entries = {one.customer_id: one.name for one in session.scalars(select(page.SearchEntry))}
    assert entries == names
    assert set(at_once) == {1}
    assert all(runs[customer] >= 1 for customer in customers)
