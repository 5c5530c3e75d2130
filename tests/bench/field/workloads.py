"""The workloads: each takes an arena, and gives figures by name."""

import random
import time
from collections.abc import Callable
from typing import Final

from tests.bench.field.arena import SLOTS, WORKERS, Arena, Seen
from tests.bench.field.fairness import Service, jain, starvation, wait_at
from tests.bench.peers.protocol import COSTLY, cost_of

Figures = dict[str, float]
HANDLER: Final = 0.01
"""Seconds that a handler takes if it takes any: all contestants that keep their slots busy are then equally fast."""
_TENANTS: Final = 100
_CLIENTS: Final = 8
_MINNOWS: Final = 99
_WARM: Final = 50
_OF_EACH: Final = 6
_UNIT: Final = 0.005
"""Seconds that a cost of 1 takes."""


def served(seen: Seen) -> Figures:
    """Return the throughput, and what a message cost the server and the workers."""
    messages = len(seen.started)
    used = {"messages/s": (messages - 1) / seen.seconds, "client us/message": 1e6 * seen.client_cpu / messages}
    return used | seen.used.by(messages)


def _tenants(count: int) -> list[str]:
    return [f"tenant-{number % _TENANTS}" for number in range(count)]


def _emptied(arena: Arena, count: int, slots: int = SLOTS) -> Figures:
    arena.load(_tenants(count))
    seen = Seen()
    with arena.workers(seen, slots=slots) as until:
        until(count)
    return served(seen)


def drain(arena: Arena, *, full: bool) -> Figures:
    """Let handlers that do nothing empty a backlog of 100 tenants, in batches if a contestant has them."""
    return _emptied(arena, arena.worth(8.0 if full else 2.0))


def one_by_one(arena: Arena, *, full: bool) -> Figures:
    """Do the same with one message in each process's hands: no batches, nothing taken ahead."""
    return _emptied(arena, 1_000 if full else 250, slots=1)


def enqueue(arena: Arena, *, full: bool) -> Figures:
    """Let one producer, nobody at work, enqueue in a transaction each, then 500 messages a call."""
    single, bulk = (2_000, 20_000) if full else (300, 3_000)
    one = arena.enqueue(tenants=_tenants(single), first=0, bulk=False, pace=[])
    many = arena.enqueue(tenants=_tenants(bulk), first=single, bulk=True, pace=[])
    return {
        "one by one, messages/s": single / (one["committed"][-1] - one["sent"][0]),
        "in bulk, messages/s": bulk / (many["committed"][-1] - many["sent"][0]),
    }


def steady(arena: Arena, *, full: bool) -> Figures:
    """Let one producer send a message a transaction as fast as it can; workers handle them meanwhile."""
    count = 3_000 if full else 500
    arena.load(["warm"])
    seen = Seen()
    with arena.workers(seen) as until:
        until(1)
        committed = arena.enqueue(tenants=_tenants(count), first=1, bulk=False, pace=[])["committed"]
        until(1 + count)
    del seen.started[0]
    services = [Service("", at, seen.started[1 + number]) for number, at in enumerate(committed)]
    return {f"wait p{part}, ms": wait_at(services, part) for part in (50, 99)} | served(seen)


def business(arena: Arena, *, full: bool) -> Figures:
    """Let 8 clients of one tenant insert a row, enqueue, work for 5 ms and commit; and the same without the enqueue."""
    arena.run("create table business (id bigint generated always as identity primary key, content text)")
    rates = []
    # First to warm up connections and plans.
    for count, with_message in ((1, True), (100 if full else 25, False), (100 if full else 25, True)):
        told = arena.transact(clients=_CLIENTS, each=count, sleep=0.005, enqueue=with_message)
        rates.append(len(told["taken"]) / told["seconds"])
    return {"transactions/s": rates[2], "to without": rates[2] / rates[1]}


def whale(arena: Arena, *, full: bool) -> Figures:
    """Let 99 minnows send now and then, alone and while the backlog of one whale is worked on; handlers of 10 ms."""
    alone = _minnows(arena, 1, 0, full=full)
    # Enough for as long as minnows come.
    backlog = min(12_000, arena.worth(10.0)) if full else min(3_000, arena.worth(4.0))
    beside = _minnows(arena, backlog, 10_000, full=full)
    p99, p99_alone = wait_at(beside, 99), wait_at(alone, 99)
    return {"p99 to alone": p99 / max(p99_alone, 1e-6), "wait p99, ms": p99, "alone, wait p99, ms": p99_alone}


def _minnows(arena: Arena, backlog: int, first: int, *, full: bool) -> list[Service]:
    seconds = 6.0 if full else 2.0
    chance = random.Random(1)  # noqa: S311 - no secret
    tenants = [f"minnow-{number % _MINNOWS}" for number in range((6 if full else 2) * _MINNOWS)]
    chance.shuffle(tenants)
    pace = sorted(chance.uniform(0, seconds) for _ in tenants)
    arena.load(["whale"] * backlog, first=first)
    seen = Seen()
    with arena.workers(seen, seconds=HANDLER) as until:
        until(min(backlog, _WARM))
        told = arena.enqueue(tenants=tenants, first=first + backlog, bulk=False, pace=pace)
        until(backlog + len(tenants))
    asked = enumerate(zip(tenants, told["committed"], strict=True), first + backlog)
    return [Service(tenant, at, seen.started[number]) for number, (tenant, at) in asked]


def newcomers(arena: Arena, *, full: bool) -> Figures:
    """Work on a whale's backlog alone, and again while minnows come that nobody declared, one message each.

    In the order of arrival the whale loses nothing, and the minnows wait for all of it.
    """
    most, many, seconds = (10_000, 5_000, 25.0) if full else (1_000, 500, 2.0)
    backlog, minnows = min(most, arena.worth(seconds)), min(many, arena.worth(seconds))
    size = many // 10
    arena.load(["whale"] * backlog)
    alone = Seen()
    with arena.workers(alone, seconds=HANDLER) as until:
        until(backlog)
    arena.load(["whale"] * backlog, first=backlog)
    seen = Seen()
    first = 2 * backlog
    # All have come when half of the whale could have been done.
    spread = backlog * HANDLER / (2 * WORKERS * SLOTS)
    pace = [spread * (number - number % size) / minnows for number in range(minnows)]
    tenants = [f"newcomer-{number}" for number in range(minnows)]
    with arena.workers(seen, seconds=HANDLER) as until:
        until(_WARM)
        told = arena.enqueue(tenants=tenants, first=first, bulk=True, pace=pace, size=size)
        until(backlog + minnows)
    services = [Service("", at, seen.started[number]) for number, at in enumerate(told["committed"], first)]
    whale_end = max(started for number, started in seen.started.items() if number < first) - seen.begin
    return {"wait p99, ms": wait_at(services, 99), "whale to alone": whale_end / alone.seconds}


def zipf(arena: Arena, *, full: bool) -> Figures:
    """Handle the messages of 100 tenants whose backlogs fall by Zipf's law, in 10 ms each."""
    count = min(16_000, arena.worth(20.0)) if full else min(4_000, arena.worth(5.0))
    weights = [1 / (rank + 1) for rank in range(_TENANTS)]
    tenants = [
        f"tenant-{rank}"
        for rank, weight in enumerate(weights)
        for _ in range(max(1, round(count * weight / sum(weights))))
    ]
    # In the order of arrival the greater ones come first, as a greedy tenant's do.
    arena.load(tenants)
    seen = Seen()
    with arena.workers(seen, seconds=HANDLER) as until:
        until(len(tenants))
    services = [Service(tenant, seen.begin, seen.started[number]) for number, tenant in enumerate(tenants)]
    return _least("jain, least", jain(services)) | {"longest starvation, ms": starvation(services)}


def _least(name: str, indexes: list[float]) -> Figures:
    return {name: min(indexes)} if indexes else {}


def costs(arena: Arena, *, full: bool) -> Figures:
    """Serve six tenants with messages of cost 1 and six with messages of cost 10; a handler takes 5 ms times the cost.

    All of them stay backlogged for as long as is measured. What the costly tenants get of the workers' time against
    the cheap ones is 1 if costs are shared, and 10 if messages are counted.
    """
    dear, seconds = 10, 8.0 if full else 3.0
    # As many as 16 slots could begin of them at best, if costs were shared evenly, or messages; and a bit more.
    units = WORKERS * SLOTS / _UNIT * seconds / (2 * _OF_EACH)
    cheap_each = round(1.3 * units)
    dear_each = round(1.3 * 2 * units / (1 + dear))
    order = [
        (f"{kind}-{tenant}", number)
        for turn in range(cheap_each)
        for tenant in range(_OF_EACH)
        for kind, number, each in (
            ("cheap", turn * _OF_EACH + tenant, cheap_each),
            ("dear", dear * COSTLY + turn * _OF_EACH + tenant, dear_each),
        )
        if turn < each
    ]
    arena.load_numbered(order)
    seen = Seen()
    with arena.workers(seen, seconds=_UNIT) as until:
        until(1)
        # What they did is noted by themselves; there is nothing to wait for but the time.
        time.sleep(seconds)
    # What was left counts as begun after the end, so that every tenant is seen to want more.
    end = seen.begin + seconds
    services = [
        Service(tenant, seen.begin, min(seen.started.get(number, end + 1), end + 1), cost_of(number))
        for tenant, number in order
    ]
    done = [service for service in services if service.started < end]
    got = {kind: sum(service.cost for service in done if service.tenant.startswith(kind)) for kind in ("cheap", "dear")}
    indexes = jain(services, least=2 * _OF_EACH)[: int(seconds)]
    return _least("jain by cost, least", indexes) | {"costly to cheap": got["dear"] / max(got["cheap"], 1)}


WORKLOADS: Final[dict[str, Callable[..., Figures]]] = {
    work.__name__: work for work in (drain, one_by_one, enqueue, steady, business, whale, newcomers, zipf, costs)
}
