"""Messages, timings and waits that the tests of workers share."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, Enqueue, Queue, Worker
from sqlalchemy_fairqueue.worker.leases import HeldDelivery
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE

LISTENERS = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and application_name like 'fairqueue listener %'"
)
"""Query for the number of connections to the test's database that listen for notifications."""

LONG_LEASE = timedelta(hours=1)
"""A lease that no machine stalls for."""

MANY_HEARTBEATS = {"heartbeats": 20_000}
"""Timings with which workers extend a long lease several times a second."""

_POLL_SECONDS = 0.003
W = TypeVar("W", Worker, AsyncWorker)


def retimed(worker: W, **timings: float) -> W:
    """A worker that has not been started yet, with other timings."""
    options = worker._options
    worker._options = replace(options, timings=replace(options.timings, **timings))  # type: ignore[arg-type]
    return worker


def held_of(context: Context) -> HeldDelivery:
    """The worker's own state behind a context."""
    assert isinstance(context._held, HeldDelivery)
    return context._held


def until(condition: Callable[[], Any], what: object) -> None:
    """Return as soon as the condition holds; fail if it never does, saying *what* was waited for."""
    __tracebackhide__ = True
    deadline = monotonic() + PATIENCE.total_seconds()
    pause = threading.Event()
    while not condition():
        if monotonic() > deadline:
            pytest.fail(f"waited {PATIENCE} in vain until {what}")
        pause.wait(_POLL_SECONDS)


async def auntil(condition: Callable[[], Any], what: str) -> None:
    """As until, without blocking the loop."""
    __tracebackhide__ = True
    deadline = monotonic() + PATIENCE.total_seconds()
    while not condition():
        if monotonic() > deadline:
            pytest.fail(f"waited {PATIENCE} in vain until {what}")
        await asyncio.sleep(_POLL_SECONDS)


def send(engine: Engine, queue: Queue, *payloads: object, **fields: Any) -> list[int]:
    """Enqueue one message a payload and commit; their ids."""
    messages = [Enqueue(**{"channel": "customer-1", "payload": payload, **fields}) for payload in payloads]
    with Session(engine) as session:
        receipts = queue.enqueue_many(session, messages)
        session.commit()
    return [receipt.message_id or 0 for receipt in receipts]


def is_empty(database: Database) -> bool:
    """Whether no message is left."""
    return int(database.value("select count(*) from fq_message")) == 0


def write_effect(session: Session, delivery: Delivery) -> None:
    """Write the effect of a message in its handler's session, to the table of the fixture ``effects``."""
    session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})


def count_effects(database: Database) -> int:
    """The effects that were committed."""
    return int(database.value("select count(*) from effect"))


def expire_leases(database: Database) -> None:
    """Let all leases end, as if their holders had been away for too long."""
    database.execute("update fq_lease set expires_at = fq_now()")


def outlive(lease: timedelta, clock: Clock, *workers: Worker | AsyncWorker) -> None:
    """Let more time pass than a lease, by the database's clock, as the heartbeats of these workers extend it."""

    def heartbeats() -> int:
        return sum(worker.stats.heartbeats for worker in workers)

    queues = sum(len(worker._options.queues) for worker in workers)

    def has_grown(since: int) -> bool:
        # The last one may have been sent before; when one more of each queue is counted, another has been answered.
        return heartbeats() > since + queues

    for _ in range(3):
        clock.advance(lease / 2)
        until(partial(has_grown, heartbeats()), "it is extended")


def threads_of(name: str) -> list[str]:
    """The names of the threads of a worker that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(name)]
