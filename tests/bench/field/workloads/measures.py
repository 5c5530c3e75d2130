"""Figures that workloads have in common: those of a group of workers, and of waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.bench.field.arena import Seen
from tests.bench.field.fairness import starvation, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.field.arena import Arena
    from tests.bench.field.fairness import Service

Figures = dict[str, float]
HANDLER: Final = 0.01
"""Seconds that a handler takes where it takes any: all contestants that keep their slots busy are then equally fast."""
TENANTS: Final = 100


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


def waiting(services: list[Service]) -> Figures:
    """Percentiles of waits, and the longest starvation."""
    found = {f"wait {name}, ms": value for name, value in waits(services).items()}
    return found | {"longest starvation, ms": starvation(services)}


def by_tenant(services: list[Service]) -> Iterable[list[Service]]:
    """The services of each tenant."""
    found: dict[str, list[Service]] = {}
    for service in services:
        found.setdefault(service.tenant, []).append(service)
    return found.values()


def emptied(arena: Arena, count: int, *, slots: int = 0) -> Seen:
    """Let handlers that do nothing handle so many messages of what is there."""
    seen = Seen()
    with arena.workers(seen, **({"slots": slots} if slots else {})) as workers:
        workers.until(count)
    return seen


def changed(arena: Arena, count: int, change: Callable[[int], Figures], *, tenants: int = TENANTS) -> Figures:
    """Handle *count* messages, change something, handle as many more: what the change made of a message's cost.

    Args:
        arena: where.
        count: messages of each half.
        change: called with the number of the first message that it may add.
        tenants: whose they are, in turn.
    """
    arena.fill(count, tenants=tenants)
    before = emptied(arena, count)
    told = change(count)
    after = emptied(arena, count)
    first, then = (1e6 * seen.sessions_cpu / len(seen.started) for seen in (before, after))
    compared = {
        **({"sessions us, to before": then / first} if first else {}),
        "time, to before": before.rate / after.rate,
        "sessions us/message": then,
        "before, sessions us/message": first,
        "before, messages/s": before.rate,
    }
    return told | compared | served(after)
