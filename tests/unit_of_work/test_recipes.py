"""The recipes of the documentation do what they promise, and the examples about transactions run.

"One message per entity": no change is lost, and no two handlers work on an entity at once.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, LeaseLost, Queue, Worker
from sqlalchemy_fairqueue.unit_of_work.sessions import recorded
from tests.docs.pages import DOCS, blocks
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits

# Examples with these are run for themselves only: what they register is the process's.
_LIBRARIES = ("opentelemetry",)
_HOUR = datetime(2026, 1, 1, 12, tzinfo=UTC)

Run = Callable[[str], Any]


def _examples(page: str) -> list[str]:
    return [block.text for block in blocks(DOCS / page) if block.language == "python"]


@pytest.mark.parametrize("example", _examples("transactions.md"))
def test_transactions(engine: Engine, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    """Every example of the page of transactions runs as it stands, on the test's database."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    exec(compile(example, "transactions.md", "exec"), ModuleType("example").__dict__)  # noqa: S102 - our own page


@pytest.fixture
def run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the page's examples up to the one that has a text: ``run("def tick")`` gives their names."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    examples = _examples("recipes.md")

    def upto(text: str) -> Any:
        names: dict[str, Any] = {"__name__": "recipes"}
        for example in examples:
            if text in example or not any(library in example for library in _LIBRARIES):
                exec(compile(example, "recipes.md", "exec"), names)  # noqa: S102 - our own page
            if text in example:
                return SimpleNamespace(**names)
        raise AssertionError(text)

    return upto


def _take(page: Any, engine: Engine) -> Any:
    """The only delivery."""
    [delivery] = page.queue.dequeue(engine, limit=10)
    return delivery


def test_a_row_a_slot(run: Run, engine: Engine, database: Database) -> None:
    """Many callers at once make one message of a slot, and nobody makes another when that one is completed."""
    page = run("def tick")
    page.queue.complete(engine, _take(page, engine))
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(lambda _: page.tick("hourly", _HOUR), range(16)))
    delivery = _take(page, engine)
    assert (delivery.kind, delivery.payload) == ("hourly", {"slot": _HOUR.isoformat()})
    page.queue.complete(engine, delivery)
    page.tick("hourly", _HOUR)
    assert database.value("select count(*) from fq_message") == 0
    page.tick("hourly", _HOUR + timedelta(hours=1))
    assert database.value("select count(*) from fq_message") == 1


def _begin(page: Any, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        page.enqueue_nightly(session, _HOUR)


def _handle(page: Any, handler: str, delivery: Delivery, engine: Engine) -> None:
    """As a worker does with a handler that takes a session."""
    with Session(engine) as session, session.begin():
        getattr(page, handler)(delivery, session)
        page.queue.complete(session, delivery)


def test_a_message_that_enqueues_its_successor(run: Run, engine: Engine, database: Database, clock: Clock) -> None:
    """The chain is one message at any time: after two starts, a failure, a success, and a start during each."""
    page = run("def nightly")
    database.execute("delete from fq_message")
    keys = "select array_agg(key || ' ' || convert_from(content, 'UTF8')) from fq_message"
    first, second = (f'nightly {{"slot":"{at.isoformat()}"}}' for at in (_HOUR, _HOUR + page.DAY))
    _begin(page, engine)
    _begin(page, engine)
    assert database.value(keys) == [first]
    delivery = _take(page, engine)
    _begin(page, engine)
    with Session(engine) as session:
        page.nightly(delivery, session)
        page.queue.complete(session, delivery)
        session.rollback()
    assert database.value(keys) == [first]
    _handle(page, "nightly", delivery, engine)
    _begin(page, engine)
    assert database.value(keys) == [second]
    clock.advance(page.DAY)
    assert _take(page, engine).payload == {"slot": (_HOUR + page.DAY).isoformat()}


def test_progress_is_seen_before_the_commit(run: Run, engine: Engine) -> None:
    """Another transaction sees how far a handler is, under the name of its tenant alone."""
    page = run("def import_rows")
    seen = []

    def look() -> None:
        with Session(engine) as session:
            seen.append([page.progress_of(session, channel, 7) for channel in ("mine", "other")])

    delivery = SimpleNamespace(message_id=7, channel="mine", payload={"rows": [1, 2, 3]})
    with Session(engine) as session:
        page.import_rows(delivery, SimpleNamespace(check=look), session)
    assert seen == [[None, None], [1, None], [2, None]]


def test_usage_of_a_day(run: Run, engine: Engine, clock: Clock) -> None:
    """Attempts that completed in the day count with what they cost, again and again the same."""
    page = run("def add_up")
    page.queue.purge(engine, "periodic")
    day = clock.now().replace(hour=0, minute=0, second=0, microsecond=0) + page.DAY
    clock.advance(day - clock.now())
    for channel in ("a", "a", "b"):
        page.queue.enqueue(engine, channel=channel, payload=1, kind="nightly", cost=3)
    for delivery in page.queue.dequeue(engine, limit=10):
        page.queue.complete(engine, delivery, cost=10)
    clock.advance(page.DAY)
    page.queue.enqueue(engine, channel="a", payload=1, kind="nightly")
    page.queue.complete(engine, page.queue.dequeue(engine))
    for _ in range(2):
        with Session(engine) as session, session.begin():
            page.add_up(session, day)
    with Session(engine) as session:
        rows = session.scalars(sqlalchemy.select(page.Usage).order_by(page.Usage.channel)).all()
        assert [(row.channel, row.messages, row.cost) for row in rows] == [("a", 2, 20), ("b", 1, 10)]


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
    _handle(page, "index_customer", _take(page, engine), engine)
    assert _indexed(page, engine) == "new"


def test_a_change_before_the_handler_has_the_lock(page: Any, engine: Engine, waits: Waits) -> None:
    """The handler waits for the producer's COMMIT, and sees the change for which no message was added."""
    assert _rename(page, "old", engine) == "created"
    delivery = _take(page, engine)
    with Session(engine) as session, session.begin():
        page.rename_customer(session, 1, "new")
        [operation] = recorded(session)
        handler = waits.start(partial(_handle, page, "index_customer", delivery)).blocked()
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
    _handle(page, "index_customer", _take(page, engine), engine)
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
        other = waits.start(partial(_handle, page, "index_customer", again)).blocked()
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
    events: list[tuple[int, int]] = []

    def count(context: Any, proceed: Callable[[], Any]) -> Any:
        customer = context.delivery.payload["customer"]
        events.append((customer, 1))
        try:
            return proceed()
        finally:
            events.append((customer, -1))

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
    for customer in customers:
        assert {*accumulate(change for whose, change in events if whose == customer)} == {0, 1}
