"""Loads through the library's Python API: workers, loops by hand, and occasional enqueues."""

import asyncio
import random
import threading
import time
from array import array
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.synchronize import Barrier

from sqlalchemy import URL, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, BytesCodec, Delivery, Queue
from sqlalchemy_fairqueue.worker import Worker
from tests.bench.processes import Watch

_LEASE = timedelta(seconds=30)
_BATCH = 100
# A consumer that finds nothing may have met another's locks: it is asked again.
_ASKED_AGAIN = 20
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Job:
    """What a process shall do.

    Attributes:
        url: The database.
        enough: Messages after which it stops.
        threads: Handlers, or loops, at once.
        notify: Whether a waiting worker is woken.
        poll_interval: Seconds between two polls of a waiting worker.
        seconds: How long a worker goes on at most.
        ahead: Whether a worker has started before the clock does.
    """

    url: URL
    enough: int = 1 << 62
    threads: int = 4
    notify: bool = True
    poll_interval: float = 5.0
    seconds: float = 600.0
    ahead: bool = False


@dataclass(slots=True)
class _Tally:
    """Messages that handlers were given, when, and an event for the last of them."""

    enough: int
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    started: "array[float]" = field(default_factory=lambda: array("d"))
    done: threading.Event = field(default_factory=threading.Event)
    queue: Queue = field(default_factory=lambda: Queue("bench", schema="fairqueue", codec=BytesCodec()))

    def count(self, delivery: Delivery) -> None:
        self.started.append(time.monotonic())
        self.ids.append(delivery.message_id)
        if len(self.ids) == self.enough:
            self.done.set()

    def watch(self, began: float, used: float) -> Watch:
        """Return what was seen, each message a batch of its own, all of it done with by now."""
        ended, counts = array("d", self.started), array("q", [1] * len(self.ids))
        if len(self.ids) >= self.enough:
            ended.append(time.monotonic())
            counts.append(0)
        return Watch(began, ended, counts, self.ids, client_cpu=time.process_time() - used)


def work(barrier: Barrier, job: Job) -> Watch:
    """Run a worker whose handler does nothing, until it was given *enough* messages and completed them, or for long."""
    tally = _Tally(job.enough)
    tally.queue.handler("default")(tally.count)
    worker = Worker(
        create_engine(job.url, pool_size=job.threads + 4),
        tally.queue,
        concurrency=job.threads,
        lease=_LEASE,
        listen=job.notify,
        poll_interval=timedelta(seconds=job.poll_interval),
    )
    if job.ahead:
        worker.start()
    barrier.wait()
    began, used = time.monotonic(), time.process_time()
    if not job.ahead:
        worker.start()
    tally.done.wait(job.seconds)
    # What is in hand is completed before the clock stops.
    worker.stop()
    return tally.watch(began, used)


def loops(barrier: Barrier, job: Job) -> Watch:
    """Run threads that dequeue and complete batches by hand until the queue is empty."""
    tally = _Tally(job.enough)
    engine = create_engine(job.url, pool_size=job.threads)

    def loop() -> None:
        empty = 0
        while empty < _ASKED_AGAIN:
            batch = tally.queue.dequeue(engine, limit=_BATCH, lease=_LEASE)
            for delivery in batch:
                tally.count(delivery)
            if batch:
                tally.queue.complete(engine, batch)
            empty = 0 if batch else empty + 1

    threads = [threading.Thread(target=loop) for _ in range(job.threads)]
    barrier.wait()
    began, used = time.monotonic(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally.watch(began, used)


def drain_async(barrier: Barrier, job: Job) -> Watch:
    """Run an AsyncWorker whose handler does nothing, on the driver of the URL, until the queue is empty."""
    tally = _Tally(job.enough)

    async def count(delivery: Delivery) -> None:
        tally.count(delivery)

    tally.queue.handler("default")(count)

    async def run() -> None:
        engine = create_async_engine(job.url, pool_size=job.threads)
        await AsyncWorker(engine, tally.queue, concurrency=job.threads, lease=_LEASE).run(drain=True)
        await engine.dispose()

    barrier.wait()
    began, used = time.monotonic(), time.process_time()
    asyncio.run(run())
    return tally.watch(began, used)


def enqueue_and_pause(barrier: Barrier, job: Job) -> Watch:
    """Commit one message after the other, some time apart; the watch has the moment when each commit returned."""
    queue = _Tally(0).queue
    engine = create_engine(job.url)
    chance = random.Random(1)  # noqa: S311 - no secret
    with engine.connect():
        pass
    barrier.wait()
    watch = Watch(time.monotonic())
    for _ in range(job.enough):
        # The queue is idle for a while, and not in step with anything.
        time.sleep(chance.uniform(0.5, 1.5) * _PAUSE)
        with Session(engine) as session:
            receipt = queue.enqueue(session, channel="a", payload=b"x")
            session.commit()
        assert receipt.message_id is not None
        watch.add_ids(array("q", [receipt.message_id]))
    return watch
