"""Loads that processes put on a queue: consuming, or running business transactions."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.bench.processes import Task, Watch, backend_cpu
from tests.bench.sides import SIDES, Side
from tests.bench.wire import INT8, Statement, Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

# A side that skips locked rows cannot tell "another has them just now" from "there are none": it is asked again.
_ASKED_AGAIN = 20
_IDLE = 0.005


@dataclass(frozen=True, slots=True)
class Consuming:
    """What a consumer shall do.

    Attributes:
        side: one of `SIDES`.
        conninfo: the database.
        limit: messages a batch.
        enough: for `drain`: how many messages it may have before it stops; None: until the queue is empty.
        seconds: for `cycle`, `add` and `poll`: how long.
        channels: for `cycle` and `add`: among how many channels it enqueues.
        number: which consumer it is.
    """

    side: str
    conninfo: str
    limit: int
    enough: int | None = None
    seconds: float = 0.0
    channels: int = 0
    number: int = 0


def consumers(count: int, work: Callable[[Barrier, Consuming], Watch], job: Consuming) -> list[Task]:
    """*count* consumers that each do *job* in the manner of *work*: `drain`, `cycle`, `add` or `poll`."""
    return [Task(work, (replace(job, number=number),)) for number in range(count)]


def drain(barrier: Barrier, job: Consuming) -> Watch:
    """Lease and complete until the queue is empty."""
    queue, watch, backend = _connected(barrier, job)
    used = backend_cpu(backend)
    empty = 0
    while empty < _ASKED_AGAIN and not (job.enough and len(watch.ids) >= job.enough):
        taken = queue.take(job.limit)
        if taken.ids:
            queue.finish(taken)
            watch.add(taken.ids)
            empty = 0
        elif not taken.more:
            empty += 1
    watch.backend_cpu = backend_cpu(backend) - used
    return watch


def cycle(barrier: Barrier, job: Consuming) -> Watch:
    """Lease, complete and then add as many new messages: the backlog stays as it is."""
    queue, watch, _ = _connected(barrier, job)
    while time.monotonic() < watch.started + job.seconds:
        taken = queue.take(job.limit)
        if taken.ids:
            queue.finish(taken)
            watch.add(taken.ids)
            queue.refill(len(taken.ids), job.channels)
    return watch


def add(barrier: Barrier, job: Consuming) -> Watch:
    """Add batches of messages to channels by chance, each in a transaction."""
    queue, watch, _ = _connected(barrier, job)
    while time.monotonic() < watch.started + job.seconds:
        queue.refill(job.limit, job.channels)
    return watch


def poll(barrier: Barrier, job: Consuming) -> Watch:
    """Lease and complete, and look again after 5 ms when nothing is there."""
    queue, watch, _ = _connected(barrier, job)
    while time.monotonic() < watch.started + job.seconds:
        taken = queue.take(job.limit)
        if taken.ids:
            queue.finish(taken)
            watch.add(taken.ids)
        elif not taken.more:
            # What every polling consumer does, and all sides alike.
            time.sleep(_IDLE)
    return watch


@dataclass(frozen=True, slots=True)
class Producing:
    """What a client with business transactions shall do.

    Attributes:
        side: where each transaction enqueues, all on one and the same channel; None: it does not.
        conninfo: the database.
        wait: seconds that the transaction sleeps between its insert and its enqueue.
        seconds: how long it goes on.
    """

    side: str | None
    conninfo: str
    wait: float
    seconds: float


def producers(count: int, job: Producing) -> list[Task]:
    """*count* clients that each do *job*."""
    return [Task(produce, (job,)) for _ in range(count)]


def produce(barrier: Barrier, job: Producing) -> Watch:
    """Run business transactions, with the enqueue as their last statement, as the library sends it."""
    wire = Wire(job.conninfo)
    barrier.wait()
    watch = Watch(time.monotonic())
    enqueue = _ENQUEUE[job.side] if job.side else None
    sleep = f"select pg_sleep({job.wait})"
    while time.monotonic() < watch.started + job.seconds:
        wire.run("begin")
        row = wire.call(_BUSINESS).get_value(0, 0) or b""
        wire.run(sleep)
        ids = [wire.call(enqueue, row).get_value(0, 0) or b""] if enqueue else [row]
        wire.run("commit")
        watch.add(ids)
    return watch


def _connected(barrier: Barrier, job: Consuming) -> tuple[Side, Watch, int]:
    wire = Wire(job.conninfo)
    backend = int(wire.value("select pg_backend_pid()"))
    barrier.wait()
    return SIDES[job.side](wire, b"consumer-%d" % job.number), Watch(time.monotonic()), backend


_BUSINESS = Statement(b"business", b"insert into business (payload) values (repeat('x', 100)) returning id", ())
_ENQUEUE = {
    "fair": Statement(
        b"enqueue",
        b"select message_id from fairqueue.fq_enqueue('bench', '{busy}', '{default}', array[int8send($1)],"
        b" '{null}', '{null}', '{null}', '{null}', '{null}', '{null}')",
        (INT8,),
    ),
    "fair_notifying": Statement(
        b"enqueue",
        b"select message_id from fairqueue.fq_enqueue('bench', '{busy}', '{default}', array[int8send($1)],"
        b" '{null}', '{null}', '{null}', '{null}', '{null}', '{null}', p_notify => true)",
        (INT8,),
    ),
    "head": Statement(b"enqueue", b"select head.enqueue('bench', 'busy', int8send($1))", (INT8,)),
}
