"""Throughput of drains, of enqueues, of both at once, and under a snapshot that stays open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tests.bench.field.arena import Seen
from tests.bench.field.environments import LIBRARY
from tests.bench.field.fairness import Service, percentile
from tests.bench.field.workloads.measures import TENANTS, Figures, emptied, served, waiting

if TYPE_CHECKING:
    from tests.bench.field.arena import Arena

_PARTS: Final = 5


def drain(arena: Arena, *, full: bool) -> Figures:
    """Handlers that do nothing empty a backlog of 100 tenants, in batches where a contestant has them."""
    count = arena.fill(arena.worth(8.0 if full else 2.0), tenants=TENANTS)
    return served(emptied(arena, count))


def one_by_one(arena: Arena, *, full: bool) -> Figures:
    """The same with one message in each process's hands: no batches, nothing taken ahead."""
    count = arena.fill(1_000 if full else 250, tenants=TENANTS)
    return served(emptied(arena, count, slots=1))


def enqueue(arena: Arena, *, full: bool) -> Figures:
    """One producer, nobody at work: one transaction a message, then 500 messages a call."""
    single, bulk = (2_000, 20_000) if full else (300, 3_000)
    bulk = min(bulk, arena.contestant.bulk or bulk)
    producer = arena.producer()
    tenants = [f"tenant-{number % TENANTS}" for number in range(single + bulk)]
    one = producer.ask("enqueue", tenants=tenants[:single], first=0, bulk=False, pace=[])
    many = producer.ask("enqueue", tenants=tenants[single:], first=single, bulk=True, pace=[])
    taken = [1e3 * (end - begin) for begin, end in zip(one["sent"], one["committed"], strict=True)]
    return {
        "one by one, messages/s": single / (one["committed"][-1] - one["sent"][0]),
        "one by one, p50 ms": percentile(taken, 50),
        "one by one, p99 ms": percentile(taken, 99),
        "in bulk, messages/s": bulk / (many["committed"][-1] - many["sent"][0]),
    }


def steady(arena: Arena, *, full: bool) -> Figures:
    """One producer sends one message a transaction as fast as it can, workers handle them meanwhile."""
    count = 3_000 if full else 500
    arena.load(["warm"])
    tenants = [f"tenant-{number % TENANTS}" for number in range(count)]
    seen = Seen()
    producer = arena.producer()
    with arena.workers(seen) as workers:
        workers.until(1)
        committed = producer.ask("enqueue", tenants=tenants, first=1, bulk=False, pace=[])["committed"]
        workers.until(1 + count)
    del seen.started[0]
    services = [Service(tenant, committed[number], seen.started[1 + number]) for number, tenant in enumerate(tenants)]
    return {"in, messages/s": count / (committed[-1] - committed[0])} | waiting(services) | served(seen)


def snapshot(arena: Arena, *, full: bool) -> Figures:
    """A backlog of about 2,000 is kept up while a snapshot stays open; the last fifth of the time against the first.

    In the full form the time is five minutes for the library and 75 seconds for the others.
    """
    seconds = (300.0 if arena.contestant == LIBRARY else 75.0) if full else 12.0
    sent = backlog = 2_000
    arena.load([f"tenant-{number % TENANTS}" for number in range(sent)])
    seen = Seen()
    producer = arena.producer()
    with arena.connected() as watcher:
        watcher.run("begin isolation level repeatable read; select 1")
        with arena.workers(seen) as workers:
            workers.until(1)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                lacking = workers.count() + backlog - sent
                if lacking > 0:
                    tenants = [f"tenant-{number % TENANTS}" for number in range(sent, sent + lacking)]
                    producer.ask("enqueue", tenants=tenants, first=sent, bulk=True, pace=[])
                    sent += lacking
    part = seconds / _PARTS
    first, last = (_between(seen, number * part, (number + 1) * part) for number in (0, _PARTS - 1))
    told = {"seconds": seconds, "first, messages/s": first, "last, messages/s": last, "last to first": last / first}
    return told | served(seen)


def _between(seen: Seen, since: float, until: float) -> float:
    begin = seen.begin
    return sum(since <= started - begin < until for started in seen.started.values()) / (until - since)
