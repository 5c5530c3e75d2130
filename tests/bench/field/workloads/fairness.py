"""Fairness among tenants: a whale and its minnows, newcomers, tenants by Zipf's law, and tenants of unequal costs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.bench.field.arena import SLOTS, WORKERS, Seen
from tests.bench.field.fairness import Service, jain, percentile, waits
from tests.bench.field.workloads.measures import HANDLER, TENANTS, Figures, by_tenant, served, waiting
from tests.bench.peers.protocol import COSTLY, cost_of

if TYPE_CHECKING:
    from tests.bench.field.arena import Arena

_MINNOWS: Final = 99
_WARM: Final = 50
_OF_EACH: Final = 6
_UNIT: Final = 0.005
"""Seconds that a cost of 1 takes."""


def whale(arena: Arena, *, full: bool) -> Figures:
    """99 minnows send messages now and then, first alone, then while the backlog of one whale is worked on.

    The handler takes 10 ms. The wait of the minnows beside the whale, and against their wait alone.
    """
    alone, _ = _minnows(arena, 1, 0, full=full)
    # Enough for as long as minnows come.
    backlog = min(12_000, arena.worth(10.0)) if full else min(3_000, arena.worth(4.0))
    beside, seen = _minnows(arena, backlog, 10_000, full=full)
    here, there = waiting(beside), waiting(alone)
    compared = {
        f"{name} to alone": here[f"wait {name}, ms"] / max(there[f"wait {name}, ms"], 1e-6)
        for name in ("p50", "p95", "p99")
    }
    return compared | here | {f"alone, {name}": value for name, value in there.items()} | served(seen)


def _minnows(arena: Arena, backlog: int, first: int, *, full: bool) -> tuple[list[Service], Seen]:
    seconds = 6.0 if full else 2.0
    chance = random.Random(1)  # noqa: S311 - no secret
    tenants = [f"minnow-{number % _MINNOWS}" for number in range((6 if full else 2) * _MINNOWS)]
    chance.shuffle(tenants)
    pace = sorted(chance.uniform(0, seconds) for _ in tenants)
    arena.load(["whale"] * backlog, first=first)
    seen = Seen()
    start = first + backlog
    producer = arena.producer()
    with arena.workers(seen, seconds=HANDLER) as workers:
        workers.until(min(backlog, _WARM))
        committed = producer.ask("enqueue", tenants=tenants, first=start, bulk=False, pace=pace)["committed"]
        workers.until(backlog + len(tenants))
    asked = zip(tenants, committed, strict=True)
    return [Service(tenant, at, seen.started[start + number]) for number, (tenant, at) in enumerate(asked)], seen


def newcomers(arena: Arena, *, full: bool) -> Figures:
    """A whale's backlog alone, and again while minnows come that nobody declared (full: 5,000), one message each.

    When the whale is done, in both; when it would be done at best if all minnows went first; the minnows' waits. In the
    order of arrival the whale loses nothing, and the minnows wait for all of it.
    """
    most, many, seconds = (10_000, 5_000, 25.0) if full else (1_000, 500, 2.0)
    backlog, minnows = min(most, arena.worth(seconds)), min(many, arena.worth(seconds))
    size = many // 10
    arena.load(["whale"] * backlog)
    alone = Seen()
    with arena.workers(alone, seconds=HANDLER) as workers:
        workers.until(backlog)
    arena.load(["whale"] * backlog, first=backlog)
    seen = Seen()
    first = 2 * backlog
    tenants = [f"newcomer-{number}" for number in range(minnows)]
    # All have come when half of the whale could have been done.
    spread = backlog * HANDLER / (2 * WORKERS * SLOTS)
    pace = [spread * (number - number % size) / minnows for number in range(minnows)]
    producer = arena.producer()
    with arena.workers(seen, seconds=HANDLER) as workers:
        workers.until(_WARM)
        told = producer.ask("enqueue", tenants=tenants, first=first, bulk=True, pace=pace, size=size)
        workers.until(backlog + minnows)
    services = [
        Service(tenant, at, seen.started[first + number])
        for number, (tenant, at) in enumerate(zip(tenants, told["committed"], strict=True))
    ]
    whale_end = max(started for number, started in seen.started.items() if number < first) - seen.begin
    return {
        "whale alone, s": alone.end - alone.begin,
        "whale, s": whale_end,
        "whale to alone": whale_end / (alone.end - alone.begin),
        "whale to all minnows first": whale_end / ((backlog + minnows) / alone.rate),
        "alone, messages/s": alone.rate,
        **waiting(services),
        **served(seen),
    }


def zipf(arena: Arena, *, full: bool) -> Figures:
    """100 tenants whose backlogs fall by Zipf's law; 10 ms handlers; fairness second by second."""
    count = min(16_000, arena.worth(20.0)) if full else min(4_000, arena.worth(5.0))
    weights = [1 / (rank + 1) for rank in range(TENANTS)]
    tenants = [
        f"tenant-{rank}"
        for rank, weight in enumerate(weights)
        for _ in range(max(1, round(count * weight / sum(weights))))
    ]
    # In the order of arrival the greater ones come first, as a greedy tenant's do.
    arena.load(tenants)
    seen = Seen()
    with arena.workers(seen, seconds=HANDLER) as workers:
        workers.until(len(tenants))
    services = [Service(tenant, seen.begin, seen.started[number]) for number, tenant in enumerate(tenants)]
    indexes = jain(services)
    found = {"jain, least": min(indexes), "jain, median": percentile(indexes, 50)} if indexes else {}
    medians = [waits(mine)["p50"] for mine in by_tenant(services)]
    return found | {"greatest median wait of a tenant, ms": max(medians)} | waiting(services) | served(seen)


def costs(arena: Arena, *, full: bool) -> Figures:
    """Six tenants with messages of cost 1 and six with messages of cost 10; a handler takes 5 ms times the cost.

    All of them stay backlogged for as long as is measured. What the costly tenants get of the workers' time against
    the cheap ones is 1 where costs are shared, and 10 where messages are counted.
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
    tenants = {number: tenant for tenant, number in order}
    seen = Seen()
    with arena.workers(seen, seconds=_UNIT) as workers:
        workers.until(1)
        workers.during(seconds)
    services = [
        Service(tenants[number], seen.begin, started, cost_of(number))
        for number, started in seen.started.items()
        if started < seen.begin + seconds
    ]
    # What was left counts as begun after the end, so that every tenant is seen to want more.
    left = [
        Service(tenant, seen.begin, seen.begin + seconds + 1.0, cost_of(number))
        for tenant, number in order
        if number not in seen.started
    ]
    indexes = jain([*services, *left], least=2 * _OF_EACH)[: int(seconds)]
    found = {"jain by cost, least": min(indexes), "jain by cost, median": percentile(indexes, 50)} if indexes else {}
    got = {
        kind: sum(service.cost for service in services if service.tenant.startswith(kind)) for kind in ("cheap", "dear")
    }
    return (
        found
        | {"costly to cheap": got["dear"] / max(got["cheap"], 1), "cost/s": sum(got.values()) / seconds}
        | served(seen)
    )
