"""Messages, timings and waits that the tests of workers share."""

import asyncio
import contextlib
import inspect
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, Enqueue, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.worker.leases import HeldDelivery
from tests.docs.pages import DOCS
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.forks import Fork
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

AT_ONCE = RetryPolicy(first=timedelta(), cap=timedelta())
LATER = RetryPolicy(first=timedelta(hours=1), cap=timedelta(hours=1), jitter=0)

_POLL_SECONDS = 0.003
W = TypeVar("W", bound=Worker | AsyncWorker)


def retimed(worker: W, **timings: float) -> W:
    """A worker that has not been started yet, with other timings."""
    options = worker._options
    worker._options = replace(options, timings=replace(options.timings, **timings))  # type: ignore[arg-type]
    return worker


def drained(engine: Engine, *queues: Queue, **options: Any) -> Worker:
    """A worker that has done all that was due."""
    worker = Worker(engine, *queues, **{"housekeeping": False, **options})
    worker.run(drain=True)
    return worker


class Busy:
    """A handler that is at work until the test lets it end.

    Attributes:
        contexts: Those of its calls.
        go: Set to let it end.
    """

    def __init__(self) -> None:
        self.contexts: list[Context] = []
        self.go = threading.Event()

    def __call__(self, _: Delivery, context: Context) -> None:
        """Be at work."""
        self.contexts.append(context)
        until(self.go.is_set, "it may end")

    def begun(self, calls: int = 1) -> None:
        """Return when it is at work."""
        until(lambda: len(self.contexts) >= calls, "it is at work")


@contextlib.contextmanager
def aside(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Do something in a thread, which ends before the block does."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(PATIENCE.total_seconds())
    assert not thread.is_alive()


async def call(method: Callable[..., Any], *given: Any) -> Any:
    """Call a method of either worker: one that blocks in a thread, one that is awaited here."""
    made = await asyncio.to_thread(method, *given)
    return await made if inspect.isawaitable(made) else made


@contextlib.contextmanager
def forked(*words: str, folder: Path, whole: bool = False) -> Iterator[Any]:
    """``python ...`` in a folder; it is killed when the block ends.

    *whole*: with an interpreter of its own, which ends as that of a program does.
    """
    started: Any = subprocess.Popen([sys.executable, *words]) if whole else Fork(["python", *words], folder, os.environ)
    with started as process:
        try:
            yield process
        finally:
            process.kill()


def example(part: str) -> str:
    """The example of the page about workers that contains this."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "workers.md").read_text(), re.DOTALL)
    [found] = [one for one in blocks if part in one]
    return str(found)


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


def given_back(database: Database) -> int:
    """How many messages nobody has, and no attempt of which counts."""
    return int(database.value("select count(*) from fq_message where lease_id is null and attempts = 0"))


def charged(database: Database, queue: str = "documents") -> int:
    """What all channels of a queue were charged, with what no dequeue has heard of yet."""
    told = "select coalesce(sum(cost), 0) from fq_signal where queue = :queue"
    known = (
        "select coalesce(sum((tag + 9000000000000000000) / 2520), 0)::bigint"
        " from fq_channel_state s join fq_channel c on c.id = s.channel_id where c.queue = :queue"
    )
    return int(database.value(f"select ({told}) + ({known})", queue=queue))


def waiting(database: Database) -> int:
    """How many waits of workers there are, one a worker and queue."""
    return int(database.value("select count(*) from fq_lease where waiting_until > fq_now()"))


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


def polled_again(worker: Worker) -> None:
    """Return when a poll that was under way has ended, and another one began after that and found nothing."""
    polls = worker.stats.empty
    until(lambda: worker.stats.empty > polls + 1, "it polls again")


def threads_of(name: str) -> list[str]:
    """The names of the threads of a worker that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(name)]
