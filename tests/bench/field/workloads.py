"""The workloads. Each takes an arena and gives figures by name; what is common to all of them is added by `served`."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from tests.bench.field.arena import Seen
from tests.bench.field.judging import Service, jain, percentile, starvation, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.field.arena import Arena

Figures = dict[str, float]
_HANDLER: Final = 0.01
_MINNOWS: Final = 99
_TENANTS: Final = 100


def served(seen: Seen) -> Figures:
    """Throughput, and what a message cost the server and the workers."""
    messages = len(seen.started)
    return {
        "messages": messages,
        "messages/s": seen.rate,
        "commits/message": seen.used.commits / messages,
        "log bytes/message": seen.used.wal / messages,
        "dead rows/message": seen.used.dead / messages,
        "server us/message": 1e6 * seen.used.cpu / messages,
        "client us/message": 1e6 * seen.client_cpu / messages,
    }


def drain(arena: Arena, *, full: bool) -> Figures:
    """Handlers that do nothing empty a backlog of 100 tenants."""
    count = 50_000 if full else 3_000
    arena.load([f"tenant-{number % _TENANTS}" for number in range(count)])
    seen = Seen()
    with arena.workers(seen) as crew:
        crew.until(count)
    return served(seen)


def whale(arena: Arena, *, full: bool) -> Figures:
    """99 minnows send two messages each while the backlog of one whale is worked on; the wait of the minnows.

    The handler takes 10 ms, so that all contestants that keep their slots busy are equally fast.
    """
    backlog = 10_000 if full else 2_500
    arena.load(["whale"] * backlog)
    return _minnows(arena, backlog, full=full)


def minnows_alone(arena: Arena, *, full: bool) -> Figures:
    """The same minnows on an otherwise empty system."""
    arena.load(["warm"])
    return _minnows(arena, 1, full=full)


def _minnows(arena: Arena, backlog: int, *, full: bool) -> Figures:
    seconds = 8.0 if full else 2.5
    chance = random.Random(1)  # noqa: S311 - no secret
    tenants = [f"minnow-{number % _MINNOWS}" for number in range((6 if full else 2) * _MINNOWS)]
    chance.shuffle(tenants)
    pace = sorted(chance.uniform(0, seconds) for _ in tenants)
    seen = Seen()
    with arena.producer() as producer, arena.workers(seen, seconds=_HANDLER) as crew:
        crew.until(min(backlog, 50))
        committed = producer.ask("enqueue", tenants=tenants, first=backlog, bulk=False, pace=pace)["committed"]
        crew.until(backlog + len(tenants))
    services = [
        Service(tenant, asked, seen.started[backlog + number])
        for number, (tenant, asked) in enumerate(zip(tenants, committed, strict=True))
    ]
    return _waiting(services) | served(seen)


def zipf(arena: Arena, *, full: bool) -> Figures:
    """100 tenants whose backlogs fall by Zipf's law; 10 ms handlers; fairness second by second."""
    count = 16_000 if full else 4_000
    weights = [1 / (rank + 1) for rank in range(_TENANTS)]
    tenants = [
        f"tenant-{rank}" for rank, weight in enumerate(weights) for _ in range(round(count * weight / sum(weights)))
    ]
    # In the order of arrival the greater ones come first, as a greedy tenant's do.
    arena.load(tenants)
    seen = Seen()
    with arena.workers(seen, seconds=_HANDLER) as crew:
        crew.until(len(tenants))
    services = [Service(tenant, seen.begin, seen.started[number]) for number, tenant in enumerate(tenants)]
    indexes = jain(services)
    found = {"jain, least": min(indexes), "jain, median": percentile(indexes, 50)} if indexes else {}
    medians = [waits(mine)["p50"] for mine in _by_tenant(services)]
    return found | {"greatest median wait of a tenant, ms": max(medians)} | _waiting(services) | served(seen)


def enqueue(arena: Arena, *, full: bool) -> Figures:
    """One producer, nobody at work: one transaction a message, then 500 messages a call."""
    single, bulk = (5_000, 50_000) if full else (500, 5_000)
    with arena.producer() as producer:
        tenants = [f"tenant-{number % _TENANTS}" for number in range(single + bulk)]
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
    count = 10_000 if full else 800
    arena.load(["warm"])
    tenants = [f"tenant-{number % _TENANTS}" for number in range(count)]
    seen = Seen()
    with arena.producer() as producer, arena.workers(seen) as crew:
        crew.until(1)
        committed = producer.ask("enqueue", tenants=tenants, first=1, bulk=False, pace=[])["committed"]
        crew.until(1 + count)
    del seen.started[0]
    services = [Service(tenant, committed[number], seen.started[1 + number]) for number, tenant in enumerate(tenants)]
    return {"in, messages/s": count / (committed[-1] - committed[0])} | _waiting(services) | served(seen)


def snapshot(arena: Arena, *, full: bool) -> Figures:
    """A backlog of about 2,000 is kept up while a snapshot stays open; the last sixth of the time against the first."""
    seconds = 60.0 if full else 12.0
    sent = backlog = 2_000
    arena.load([f"tenant-{number % _TENANTS}" for number in range(sent)])
    seen = Seen()
    with arena.connected() as watcher, arena.producer() as producer:
        watcher.run("begin isolation level repeatable read; select 1")
        with arena.workers(seen) as crew:
            crew.until(1)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                lacking = crew.count() + backlog - sent
                if lacking > 0:
                    tenants = [f"tenant-{number % _TENANTS}" for number in range(sent, sent + lacking)]
                    producer.ask("enqueue", tenants=tenants, first=sent, bulk=True, pace=[])
                    sent += lacking
    first, last = (_between(seen, part * seconds / 6, (part + 1) * seconds / 6) for part in (0, 5))
    return {"first sixth, messages/s": first, "last sixth, messages/s": last, "last to first": last / first} | served(
        seen
    )


def _between(seen: Seen, since: float, until: float) -> float:
    begin = seen.begin
    return sum(since <= started - begin < until for started in seen.started.values()) / (until - since)


def _waiting(services: list[Service]) -> Figures:
    found = {f"wait {name}, ms": value for name, value in waits(services).items()}
    return found | {"longest starvation, ms": starvation(services)}


def _by_tenant(services: list[Service]) -> Iterable[list[Service]]:
    found: dict[str, list[Service]] = {}
    for service in services:
        found.setdefault(service.tenant, []).append(service)
    return found.values()


WORKLOADS: Final[dict[str, Callable[..., Figures]]] = {
    work.__name__: work for work in (drain, minnows_alone, whale, zipf, enqueue, steady, snapshot)
}
QUICK: Final = ("drain", "minnows_alone", "whale", "zipf", "enqueue")
"""Those of the quick form; `--full` runs all."""
