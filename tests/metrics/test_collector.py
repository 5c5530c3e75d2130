"""Metrics as they are scraped: registered, mounted under ASGI, and served by the command."""

import re
import signal
import sys
from contextlib import closing
from datetime import timedelta
from urllib.request import urlopen

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Metric, generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import Delivery, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.cli.serving import metrics_page
from sqlalchemy_fairqueue.metrics import METRICS, QueueCollector, WorkerCollector, asgi_application
from tests.cli.conftest import Cli, Start
from tests.cli.conftest import bare_cli as bare_cli  # noqa: PLC0414 - a fixture
from tests.cli.conftest import cli as cli  # noqa: PLC0414
from tests.cli.conftest import named as named  # noqa: PLC0414
from tests.cli.conftest import start as start  # noqa: PLC0414
from tests.cli.messages import ODD_NAMES, QUEUE, bury, enqueue, lease

_AWAY = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"


def _values(text: str) -> dict[tuple[str, ...], float]:
    """The series of a scrape: by the name and the values of the labels, in the order of the labels' names."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(one.name, *(value for _, value in sorted(one.labels.items()))): one.value for one in samples}


def _registry(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def _scraped(collector: Collector) -> dict[tuple[str, ...], float]:
    return _values(generate_latest(_registry(collector)).decode())


def _families(collector: Collector) -> list[Metric]:
    """The metrics with their exemplars, as OpenMetrics has them."""
    text = exposition.generate_latest(_registry(collector)).decode()  # type: ignore[no-untyped-call]
    return list(parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


@pytest.fixture
def worker(engine: Engine) -> Worker:
    """A worker that was never started."""
    queue = Queue("documents")
    queue.handler("parse")(lambda _: None)
    return Worker(engine, queue, name="reader")


def test_every_metric(engine: Engine, worker: Worker) -> None:
    """A scrape has each metric that is documented, with its labels and the right values, and no other."""
    QUEUE.configure(engine, history=True, max_concurrency=7)
    bury(engine, "a")
    enqueue(engine, "a", "a", "b")
    deliveries = lease(engine, 2)
    collector = QueueCollector(engine, workers=[worker])
    found = _scraped(collector)
    assert {name for name, *_ in found} == {name for metric in METRICS for name in metric.series}
    assert found["fairqueue_up",] == 1
    expected = {
        ("messages", "ready"): 1, ("messages", "scheduled"): 0, ("messages", "leased"): 2,
        ("ready_messages", "deliverable"): 1, ("ready_messages", "paused"): 0, ("ready_messages", "limited"): 0,
        ("limit",): 7, ("limit_used",): 2, ("channels",): 2, ("waiting_channels",): 1, ("dead_letters",): 1,
        ("consumers",): 1, ("completed_messages_total",): 0,
    }  # fmt: skip
    assert {key: found[f"fairqueue_{key[0]}", QUEUE.name, *key[1:]] for key in expected} == expected
    assert found["fairqueue_oldest_ready_seconds", QUEUE.name] > 0
    assert found["fairqueue_channel_wait_seconds", "1", QUEUE.name] > 0
    assert found["fairqueue_worker_events_total", "taken", "reader"] == found["fairqueue_worker_hung", "reader"] == 0

    QUEUE.complete(engine, deliveries)
    collector.figures._good_until = 0
    assert _scraped(collector)["fairqueue_completed_messages_total", QUEUE.name] == 2


def test_workers_alone(worker: Worker) -> None:
    """A process of workers exports their metrics, and no queue's."""
    found = _scraped(WorkerCollector(worker))
    of_workers = [metric for metric in METRICS if "worker" in metric.labels]
    assert {name for name, *_ in found} == {name for metric in of_workers for name in metric.series}


def test_distributions_of_attempts(engine: Engine) -> None:
    """A worker has histograms of waits, durations and attempts, which name their tenants in exemplars alone."""
    queue = Queue("documents")

    @queue.handler("parse", retry=RetryPolicy(first=timedelta(microseconds=1)))
    def parse(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("no such page")

    names = [*ODD_NAMES, "x" * 200]
    enqueue(engine, *names, kind="parse")
    worker = Worker(engine, queue, name="reader", concurrency=1)
    collector = WorkerCollector(worker)
    empty = set(_scraped(collector))
    worker.run(drain=True)
    found = _scraped(collector)
    assert set(found) == empty
    count = len(names)
    assert found["fairqueue_message_wait_seconds_count", "documents", "reader"] == count
    assert found["fairqueue_message_service_seconds_count", "documents", "reader"] == 2 * count
    attempts = [found["fairqueue_message_attempts_bucket", le, "documents", "reader"] for le in ("1.0", "2.0", "+Inf")]
    assert attempts == [count, 2 * count, 2 * count]
    assert found["fairqueue_message_attempts_sum", "documents", "reader"] == 3 * count
    shown = {name[:80] for name in names}
    exemplars = [one.exemplar for family in _families(collector) for one in family.samples if one.exemplar]
    assert exemplars
    assert {exemplar.labels["channel"] for exemplar in exemplars} <= shown


def test_the_tenants_that_wait_longest(engine: Engine) -> None:
    """They are exemplars with the reasons of their waits, of as many series as one tenant has."""
    enqueue(engine, "a", *ODD_NAMES)
    [family] = [one for one in _families(QueueCollector(engine)) if one.name == "fairqueue_longest_waits_seconds"]
    assert family.type == "gaugehistogram"
    exemplars = [sample.exemplar.labels for sample in family.samples if sample.exemplar]
    assert exemplars
    assert {one["channel"] for one in exemplars} <= {"a", *ODD_NAMES}
    assert {one["reason"] for one in exemplars} == {"no consumer"}
    counts = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
    assert (counts, counts[-1]) == (sorted(counts), len(ODD_NAMES) + 1)


def test_shortfall_of_share(engine: Engine) -> None:
    """It is what the tenant that fares worst lacks of its share: nothing where each has its own."""
    enqueue(engine, "a", "a", "b")
    assert len(lease(engine, 1)) == 1
    [holds] = [one.channel for one in QUEUE.admin.contention(engine).channels if one.leased]
    found = _scraped(QueueCollector(engine))["fairqueue_share_shortfall", QUEUE.name]
    assert found == 0.5
    assert lease(engine, 1)[0].channel != holds
    assert _scraped(QueueCollector(engine))["fairqueue_share_shortfall", QUEUE.name] == 0


def test_a_page_of_a_worker(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP server of a worker's process has a page of its metrics; without the extra it says what is missing."""
    status, kind, content = metrics_page(worker)
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert _values(content.decode())["fairqueue_worker_hung", "reader"] == 0
    status, kind, _ = metrics_page(worker, "application/openmetrics-text; version=1.0.0")
    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, content = metrics_page(worker)
    assert (status, b"[metrics]" in content) == (501, True)


def test_series_do_not_grow_with_tenants(engine: Engine) -> None:
    """A hundred tenants have as many series as one."""
    enqueue(engine, "a")
    few = set(_scraped(QueueCollector(engine)))
    enqueue(engine, *(f"tenant-{number}" for number in range(100)), *ODD_NAMES)
    assert set(_scraped(QueueCollector(engine))) == few


def test_without_a_database(worker: Worker) -> None:
    """Registering asks nothing; the rest of the registry is exported while the database is away."""
    registry = _registry(QueueCollector(create_engine(_AWAY), workers=[worker]))
    Counter("others", "Of the application.", registry=registry)
    found = _values(generate_latest(registry).decode())
    assert found["fairqueue_up",] == 0
    assert found["others_total",] == 0
    assert ("fairqueue_worker_hung", "reader") in found
    assert not [name for name, *_ in found if name == "fairqueue_messages"]


def test_odd_queue_names(engine: Engine) -> None:
    """Any name of a queue is one label, unharmed."""
    for name in ODD_NAMES:
        enqueue(engine, "a", queue=Queue(name))
    found = _scraped(QueueCollector(engine))
    assert [found["fairqueue_messages", name, "ready"] for name in ODD_NAMES] == [1] * len(ODD_NAMES)


async def test_asgi(engine: Engine, async_engine: AsyncEngine) -> None:
    """An ASGI application serves the metrics of both kinds of engines, with other collectors beside them."""
    enqueue(engine, "a")
    other = CollectorRegistry()
    Counter("others", "Of the application.", registry=other)
    for one in (engine, async_engine):
        application = asgi_application(QueueCollector(one, QUEUE), other)
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain")
            found = _values(answer.text)
            assert (found["fairqueue_messages", QUEUE.name, "ready"], found["others_total",]) == (1, 0)
            assert (await client.head("/metrics")).content == b""
    with pytest.raises(TypeError, match="asgi_application"):
        _scraped(QueueCollector(async_engine))


def test_the_command(start: Start, engine: Engine) -> None:
    """``fairqueue metrics`` serves until it is stopped, and then ends with 0."""
    enqueue(engine, "a")
    with start("metrics", "--http", "127.0.0.1:0") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", line)
        assert found, line
        with closing(urlopen(found[0])) as answer:  # noqa: S310 - our own server
            assert _values(answer.read().decode())["fairqueue_messages", QUEUE.name, "ready"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_printed_files(bare_cli: Cli) -> None:
    """The files are printed without a database."""
    for file in ("grafana", "alerts"):
        found = bare_cli("metrics", "--print", file)
        assert found.status == 0
        assert "fairqueue_up" in found.out


def test_bad_addresses(cli: Cli) -> None:
    """An address that cannot be read is named."""
    for address in ("nothing", "1:2:3", "127.0.0.1:65536", "127.0.0.1:"):
        found = cli("metrics", "--http", address)
        assert found.status == 2
        assert address in found.err
