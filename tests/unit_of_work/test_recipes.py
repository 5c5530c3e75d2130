"""The recipes of the documentation do what they promise."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest
import sqlalchemy
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import Engine
from sqlalchemy.engine import create_engine
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "recipes.md"
# Examples with these are run for themselves only: what they register is the process's.
_LIBRARIES = ("prometheus_client", "opentelemetry")
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
    keys = "select array_agg(dedupe_key || ' ' || convert_from(content, 'UTF8')) from fq_message"
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


def test_prometheus(run: Run) -> None:
    """A scrape has the queue's messages by state and the worker's counters."""
    page = run("class QueueMetrics")
    said = prometheus_client.generate_latest().decode()
    _unregister(page)
    # It depends on the time of day which of them the night's message is.
    states = [said.partition(f'documents",state="{state}"}} ')[2][:3] for state in ("ready", "scheduled")]
    assert sorted(states) in (["0.0", "2.0"], ["1.0", "1.0"])
    assert re.search(r'fairqueue_worker_total{event="taken",worker="[^"]+"} 0.0', said)
    assert 'fairqueue_oldest_ready_seconds{queue="documents"} 0.' in said
    assert 'fairqueue_up{queue="documents"} 1.0' in said


def test_prometheus_without_a_database(run: Run) -> None:
    """Registering asks nothing; what does not answer is told, beside all other metrics; two queues are no clash."""
    page = run("class QueueMetrics")
    metrics = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("others", "Of the application.", registry=metrics)
    page.QueueMetrics.collect.__globals__["engine"] = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    metrics.register(page.QueueMetrics(page.queue, sqlalchemy_fairqueue.Queue("mails"), workers=[page.worker]))
    said = prometheus_client.generate_latest(metrics).decode()
    assert "others_total 0.0" in said
    assert 'fairqueue_up{queue="documents"} 0.0' in said
    assert 'fairqueue_up{queue="mails"} 0.0' in said
    assert 'event="taken"' in said
    _unregister(page)


def _unregister(page: Any) -> None:
    for collector in [one for one in prometheus_client.REGISTRY._collector_to_names if type(one) is page.QueueMetrics]:
        prometheus_client.REGISTRY.unregister(collector)


def test_opentelemetry(run: Run) -> None:
    """The instruments report the queue's messages by state and the worker's counters."""
    reader = InMemoryMetricReader()
    set_meter_provider(MeterProvider(metric_readers=[reader]))
    run("get_meter")
    data: Any = reader.get_metrics_data()
    [resource] = data.resource_metrics
    found = {metric.name: metric.data.data_points for scope in resource.scope_metrics for metric in scope.metrics}
    assert sum(point.value for point in found["fairqueue.messages"]) == 2
    assert {point.attributes["event"] for point in found["fairqueue.worker"]} >= {"taken", "completed"}
