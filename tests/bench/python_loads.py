"""Loads through the library's Python API: workers, loops by hand, and occasional enqueues."""

from __future__ import annotations

import asyncio
import random
import secrets
import struct
import threading
import time
from array import array
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, BytesCodec, Delivery, Queue
from sqlalchemy_fairqueue.worker import Worker
from tests.bench.processes import Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

_LEASE = timedelta(seconds=30)
_BATCH = 100
_BARE_DEQUEUE = (
    "update plain.message m set lease_id = %s, attempts = m.attempts + 1, deliveries = m.deliveries + 1"
    " from (select r.ctid as row from plain.message r where r.lease_id is null order by r.id limit %s"
    " for update skip locked) t where m.ctid = t.row"
    " returning m.id, m.ctid, m.channel_id, 'channel-' || m.channel_id, m.kind, m.content, m.headers, m.enqueued_at,"
    " m.attempts, m.max_attempts, m.deliveries, m.lease_id"
)
_BARE_COMPLETE = (
    "delete from plain.message m using unnest(%s::bigint[], %s::bigint[], %s::integer[]) u(id, lease_id, deliveries)"
    " where m.id = u.id and m.lease_id is not distinct from u.lease_id and m.deliveries = u.deliveries"
)
# A consumer that finds nothing may have met another's locks: it is asked again.
_ASKED_AGAIN = 20


@dataclass(frozen=True, slots=True)
class Load:
    """What a process shall do.

    Attributes:
        url: the database.
        threads: handlers, or loops, at once.
        enough: messages after which it stops; for `enqueue_now_and_then`: how many it makes.
        notify: whether a waiting worker is woken.
        poll_interval: seconds between two polls of a waiting worker.
        seconds: for `work_for_a_while`: how long; for `enqueue_now_and_then`: the mean time between two messages.
    """

    url: str
    threads: int = 4
    enough: int = 0
    notify: bool = True
    poll_interval: float = 5.0
    seconds: float = 0.0


@dataclass(slots=True)
class _Tally:
    """Messages that handlers were given, and an event for the last of them."""

    enough: int
    ids: array[int] = field(default_factory=lambda: array("q"))
    started: array[float] = field(default_factory=lambda: array("d"))
    done: threading.Event = field(default_factory=threading.Event)

    def count(self, delivery: Delivery) -> None:
        self.started.append(time.monotonic())
        self.ids.append(delivery.message_id)
        if len(self.ids) == self.enough:
            self.done.set()


def _queue() -> Queue:
    return Queue("bench", schema="fairqueue", codec=BytesCodec())


def _worker(job: Load, queue: Queue, tally: _Tally) -> Worker:
    queue.handler("default")(tally.count)
    engine = create_engine(job.url, pool_size=job.threads + 4)
    return Worker(
        engine,
        queue,
        concurrency=job.threads,
        lease=_LEASE,
        listen=job.notify,
        poll_interval=timedelta(seconds=job.poll_interval),
    )


def work(barrier: Barrier, job: Load) -> Watch:
    """A worker whose handler does nothing, until it was given *enough* messages and all are completed."""
    tally = _Tally(job.enough)
    worker = _worker(job, _queue(), tally)
    barrier.wait()
    watch = Watch(time.monotonic())
    worker.start()
    tally.done.wait(600)
    # What is in hand is completed before the clock stops.
    worker.stop()
    return _told(watch, tally)


def work_for_a_while(barrier: Barrier, job: Load) -> Watch:
    """A worker whose handler does nothing, for so many seconds; each message is a batch of its own in the watch."""
    tally = _Tally(job.enough)
    worker = _worker(job, _queue(), tally)
    worker.start()
    barrier.wait()
    watch = Watch(time.monotonic())
    tally.done.wait(job.seconds)
    worker.stop()
    watch.ids, watch.ended = tally.ids, tally.started
    watch.counts = array("q", [1] * len(tally.ids))
    return watch


def loops(barrier: Barrier, job: Load) -> Watch:
    """Threads that dequeue and complete batches by hand until the queue is empty."""
    queue, tally = _queue(), _Tally(job.enough)
    engine = create_engine(job.url, pool_size=job.threads)

    def loop() -> None:
        empty = 0
        while empty < _ASKED_AGAIN:
            batch = queue.dequeue(engine, limit=_BATCH, lease=_LEASE)
            for delivery in batch:
                tally.count(delivery)
            if batch:
                queue.complete(engine, batch)
            empty = 0 if batch else empty + 1

    return _by_threads(barrier, job, tally, loop)


def bare_loops(barrier: Barrier, job: Load) -> Watch:
    """Threads that take and complete batches of the unfair bound by psycopg alone until its table is empty."""
    tally = _Tally(job.enough)

    def loop() -> None:
        url = make_url(job.url).set(drivername="postgresql").render_as_string(hide_password=False)
        lease = secrets.randbits(63)
        with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
            cursor = connection.cursor(binary=True)
            while rows := cursor.execute(_BARE_DEQUEUE, (lease, _BATCH)).fetchall():
                tally.started.extend([time.monotonic()] * len(rows))
                tally.ids.extend([row[0] for row in rows])
                cursor.execute(
                    _BARE_COMPLETE, ([row[0] for row in rows], [row[11] for row in rows], [row[10] for row in rows])
                )

    return _by_threads(barrier, job, tally, loop)


def drain_async(barrier: Barrier, job: Load) -> Watch:
    """An AsyncWorker whose handler does nothing, on the driver of the URL, until the queue is empty."""
    queue, tally = _queue(), _Tally(job.enough)

    async def count(delivery: Delivery) -> None:
        tally.count(delivery)

    queue.handler("default")(count)

    async def run() -> None:
        engine = create_async_engine(job.url, pool_size=job.threads)
        await AsyncWorker(engine, queue, concurrency=job.threads, lease=_LEASE).run(drain=True)
        await engine.dispose()

    barrier.wait()
    watch, used = Watch(time.monotonic()), time.process_time()
    asyncio.run(run())
    watch.client_cpu = time.process_time() - used
    return _told(watch, tally)


def _by_threads(barrier: Barrier, job: Load, tally: _Tally, loop: Callable[[], None]) -> Watch:
    threads = [threading.Thread(target=loop) for _ in range(job.threads)]
    barrier.wait()
    watch, used = Watch(time.monotonic()), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.client_cpu = time.process_time() - used
    return _told(watch, tally)


def enqueue_now_and_then(barrier: Barrier, job: Load) -> Watch:
    """Commit one message after the other, some time apart; the watch has the moment when each commit returned."""
    queue = _queue()
    engine = create_engine(job.url)
    chance = random.Random(1)  # noqa: S311 - no secret
    with engine.connect():
        pass
    barrier.wait()
    watch = Watch(time.monotonic())
    for _ in range(job.enough):
        # The queue is idle for a while, and not in step with anything.
        time.sleep(chance.uniform(0.5, 1.5) * job.seconds)
        with Session(engine) as session:
            receipt = queue.enqueue(session, channel="a", payload=b"x")
            session.commit()
        watch.add([struct.pack("!q", receipt.message_id)])
    return watch


def _told(watch: Watch, tally: _Tally) -> Watch:
    watch.ended.append(time.monotonic())
    watch.counts.append(len(tally.ids))
    watch.ids = tally.ids
    return watch
