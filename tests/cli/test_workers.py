"""``workers list`` and ``workers stop``."""

import logging
from importlib import metadata

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from tests.cli.conftest import Cli
from tests.cli.messages import enqueue, lease
from tests.fixtures.database import Database
from tests.worker.helpers import retimed, until


def test_list(cli: Cli, engine: Engine, database: Database) -> None:
    """Workers stand with what they hold, of which there may be none; names come out as they are."""
    enqueue(engine, "customer-7", "customer-7", "customer-8")
    assert "has no worker with a live lease" in cli("workers", "list").out
    found = cli("workers", "stop", "w1", "--queue", "documents")
    assert (found.status, "no worker of that name has a live lease" in found.out) == (1, True)
    assert cli("workers", "stop", "w1", "--queue", "documets").status == 1
    assert cli("workers", "stop", "", "--queue", "documents").status == 2
    for name, limit in (("[red]w1", 2), ("w2", 1)):
        assert len(lease(engine, limit, queue=Queue("documents"))) == limit
        database.execute("update fq_lease set consumer = :name where consumer not like '%w1'", name=name)
    found = cli("workers", "list", "--json").document
    assert [(one["consumer"], one["leased"]) for one in found["workers"]] == [("[red]w1", 2), ("w2", 1)]
    assert cli("workers", "stop", "w2", "--by", "dana", "--queue", "documents").status == 0
    found = cli("workers", "list", "--json").document["workers"]
    assert [one["stop_requested_by"] for one in found] == [None, "dana"]
    assert found[1]["stop_requested_at"] is not None
    rows = cli("workers", "list").rows()
    assert [row[:2] for row in rows[:3]] == [["worker", "holds"], ["[red]w1", "2"], ["w2", "1"]]
    assert [[row[0], row[2]] for row in rows[-3:]] == [["[red]w1", "parse"], ["[red]w1", "parse"], ["w2", "parse"]]


def test_a_cancel_that_is_ignored(cli: Cli, engine: Engine) -> None:
    """A message that is cancelled and still held stands with its worker, and says how to stop it."""
    queue = Queue("documents")
    queue.configure(engine, history=True)
    first, second = enqueue(engine, "customer-7", "customer-8", kind="mail")
    [delivery, _] = lease(engine, 2, queue=queue)
    consumer = delivery.lease.consumer
    assert cli("workers", "list", "--json").document["workers"][0]["cancelled"] == 0
    assert "cancelled" not in cli("messages", "show", str(first)).out
    queue.cancel(engine, first)
    queue.cancel(engine, first)
    [worker] = cli("workers", "list", "--json").document["workers"]
    assert (worker["cancelled"], worker["cancelled_at"] is not None) == (1, True)
    host, pid, _ = consumer.rsplit(":", 2)
    assert (worker["host"], worker["pid"]) == (host, int(pid))
    shown = cli("messages", "show", str(first), "--json").document
    assert (shown["cancelled"], shown["cancelled_at"]) == (True, worker["cancelled_at"])
    text = " ".join(cli("messages", "show", str(first)).out.split())
    assert f"'fairqueue workers stop {consumer} --queue documents'" in text

    handlers = cli("workers", "list", "--json").document["handlers"]
    assert [(one["consumer"], one["message_id"], one["kind"], one["channel"]) for one in handlers] == [
        (consumer, first, "mail", "customer-7"), (consumer, second, "mail", "customer-8"),
    ]  # fmt: skip
    assert [one["cancelled_at"] is None for one in handlers] == [False, True]
    assert all(one["delivered_at"] and one["held_seconds"] >= 0 for one in handlers)
    [handler] = cli("workers", "list", "--limit", "1", "--json").document["handlers"]
    assert handler["message_id"] == first
    queue.release(engine, delivery)
    assert cli("workers", "list", "--json").document["workers"][0]["cancelled"] == 0


def test_stop(cli: Cli, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that waits for work stops, and its log says who asked; then none of that name is there."""
    caplog.set_level(logging.INFO, "sqlalchemy_fairqueue")
    queue = Queue("documents", check_kinds=False)

    @queue.handler()
    def handle(_: Delivery) -> None: ...

    enqueue(engine, "customer-7", queue=queue)
    with retimed(Worker(engine, queue, name="w1"), stop_requests_every=0.02):
        until(lambda: queue.admin.consumers(engine), "it has a lease")
        until(lambda: queue.admin.consumers(engine)[0].concurrency, "it has told of itself")
        [worker] = cli("workers", "list", "--json").document["workers"]
        assert (worker["version"], worker["concurrency"]) == (metadata.version("sqlalchemy-fairqueue"), 8)
        found = cli("workers", "stop", "w1", "--by", "dana", "--json")
        assert (found.status, found.document) == (0, {"queue": "documents", "consumer": "w1", "alive": True})
        until(lambda: "worker w1 stopped" in caplog.text, "it stops")
    assert "worker w1 stops: 'dana' asked it to" in caplog.text
