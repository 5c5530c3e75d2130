"""The recipes of the documentation do what they promise."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "recipes.md"
# Examples with these are run for themselves only: what they register is the process's.
_LIBRARIES = ("opentelemetry",)
_HOUR = datetime(2026, 1, 1, 12, tzinfo=UTC)

Run = Callable[[str], Any]


@pytest.fixture
def run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the page's examples up to the one that has a text: ``run("def tick")`` gives their names."""
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _: engine)
    examples = [part.partition("```")[0] for part in _PAGE.read_text().split("```python\n")[1:]]

    def upto(text: str) -> Any:
        names: dict[str, Any] = {"__name__": "recipes"}
        for example in examples:
            if text in example or not any(library in example for library in _LIBRARIES):
                exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
            if text in example:
                return SimpleNamespace(**names)
        raise AssertionError(text)

    return upto


def _take(page: Any, engine: Engine) -> Any:
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


def _handle(page: Any, engine: Engine, delivery: Any, *, fails: bool = False) -> None:
    """As a worker does with a handler that takes a session."""
    with Session(engine) as session:
        page.nightly(delivery, session)
        page.queue.complete(session, delivery)
        if fails:
            session.rollback()
        else:
            session.commit()


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
    _handle(page, engine, delivery, fails=True)
    assert database.value(keys) == [first]
    _handle(page, engine, delivery)
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
