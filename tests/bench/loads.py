"""Loads that processes put on a queue by SQL: consuming, adding, and business transactions."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier

from tests.bench.processes import Task, Watch, backend_cpu
from tests.bench.sides import SIDES
from tests.bench.wire import INT8, Statement, Wire

# A side that skips locked rows cannot tell "another has them just now" from "there are none": it is asked again.
_ASKED_AGAIN = 20
_IDLE = 0.005
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Load:
    """What a process shall do.

    Attributes:
        side: One of `SIDES`.
        conninfo: The database.
        limit: Messages a batch.
        enough: How many messages it may have before it stops; if the queue is empty before, it stops too.
        seconds: How long it goes on instead, whether the queue is empty or not.
        channels: Among how many channels it enqueues; for `consume`: as many messages as it had; 0: none.
        number: Which consumer it is.
    """

    side: str
    conninfo: str
    limit: int
    enough: int = _NEVER
    seconds: float = 0.0
    channels: int = 0
    number: int = 0


def tasks(count: int, work: Callable[[Barrier, Load], Watch], load: Load) -> list[Task]:
    """Return *count* processes that each do *load* by `consume`, `add` or `produce`."""
    return [Task(work, (replace(load, number=number),)) for number in range(count)]


def consume(barrier: Barrier, load: Load) -> Watch:
    """Lease and complete batches, each in a transaction; add as many new messages in a third if that is wanted."""
    wire = Wire(load.conninfo)
    backend = int(wire.value("select pg_backend_pid()"))
    barrier.wait()
    queue, watch = SIDES[load.side](wire, b"consumer-%d" % load.number), Watch(time.monotonic())
    used, empty = backend_cpu(backend), 0
    until = watch.started + load.seconds
    while time.monotonic() < until if load.seconds else empty < _ASKED_AGAIN and len(watch.ids) < load.enough:
        taken = queue.take(load.limit)
        if taken.ids:
            queue.finish(taken)
            watch.add(taken.ids)
            if load.channels:
                queue.refill(len(taken.ids), load.channels)
            empty = 0
        elif not taken.more:
            empty += 1
            if load.seconds:
                # What every polling consumer does, and all sides alike.
                time.sleep(_IDLE)
    watch.backend_cpu = backend_cpu(backend) - used
    return watch


def add(barrier: Barrier, load: Load) -> Watch:
    """Add batches of messages to channels by chance, each in a transaction."""
    queue = SIDES[load.side](Wire(load.conninfo), b"")
    barrier.wait()
    watch = Watch(time.monotonic())
    while time.monotonic() < watch.started + load.seconds:
        queue.refill(load.limit, load.channels)
    return watch


def produce(barrier: Barrier, load: Load) -> Watch:
    """Run business transactions with an enqueue to one channel as their last statement, which wakes a worker."""
    wire = Wire(load.conninfo)
    barrier.wait()
    watch = Watch(time.monotonic())
    while time.monotonic() < watch.started + load.seconds:
        wire.run("begin")
        row = wire.call(_BUSINESS).get_value(0, 0) or b""
        message = wire.call(_ENQUEUE, row).get_value(0, 0) or b""
        wire.run("commit")
        watch.add([message])
    return watch


_BUSINESS = Statement(b"business", b"insert into business (payload) values (repeat('x', 100)) returning id", ())
_ENQUEUE = Statement(
    b"enqueue",
    b"select message_id from fairqueue.fq_enqueue('bench', '{busy}', '{default}', array[int8send($1)],"
    b" '{null}', '{null}', '{null}', '{null}', '{null}', '{null}', p_notify => true)",
    (INT8,),
)
