"""Costs of a message beside many others: deep backlogs, many tenants, idle tenants, delayed messages, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.bench.field.environments import NotForIt
from tests.bench.field.workloads.measures import TENANTS, Figures, changed, emptied

if TYPE_CHECKING:
    from tests.bench.field.arena import Arena

_SHALLOW: Final = 10_000
_HOT: Final = 10


def backlog_100k(arena: Arena, *, full: bool) -> Figures:
    """The first messages of a backlog of 100,000, against a backlog of 10,000; the same 100 tenants."""
    return _deep(arena, 100_000, TENANTS, full=full)


def backlog_1m(arena: Arena, *, full: bool) -> Figures:
    """The first messages of a backlog of a million, against a backlog of 10,000; the same 100 tenants."""
    return _deep(arena, 1_000_000, TENANTS, full=full)


def channels_100k(arena: Arena, *, full: bool) -> Figures:
    """100,000 tenants with 10 messages each (quick: 20,000), against 100 tenants and a backlog of 10,000."""
    tenants = 100_000 if full else 20_000
    return _deep(arena, 10 * tenants, tenants, full=full)


def backlog_10m(arena: Arena, *, full: bool) -> Figures:
    """100,000 tenants with 100 messages each, against 100 tenants and a backlog of 10,000; those filled in SQL only."""
    if arena.contestant.bulk:
        raise NotForIt("its own bulk call would take too long to add 10,000,000 messages")
    return _deep(arena, 10_000_000, 100_000, full=full)


def _deep(arena: Arena, depth: int, tenants: int, *, full: bool) -> Figures:
    """Handle the first messages of a shallow backlog of few tenants and then of a deep one."""

    def deepen(first: int) -> Figures:
        return {"backlog": arena.fill(depth, tenants=tenants, first=first), "tenants": tenants}

    return changed(arena, min(_SHALLOW, arena.worth(5.0 if full else 2.0)), deepen)


def future(arena: Arena, *, full: bool) -> Figures:
    """Messages of one tenant that are ready, beside a million of the same tenant's for tomorrow (quick: 100,000)."""
    later = 1_000_000 if full else 100_000

    def postpone(first: int) -> Figures:
        added = arena.fill(later, tenants=1, first=first, later=True)
        arena.fill(count, tenants=1, first=first + added)
        return {"for tomorrow": added}

    count = arena.worth(5.0 if full else 2.0)
    return changed(arena, count, postpone, tenants=1)


def idle(arena: Arena, *, full: bool) -> Figures:
    """10 hot tenants before 10,000 others (quick: 2,000) sent a message each and fell silent, and after."""
    silent = 10_000 if full else 2_000

    def silence(first: int) -> Figures:
        added = arena.fill(silent, tenants=silent, first=first)
        emptied(arena, added)
        arena.fill(count, tenants=_HOT, first=first + added)
        return {"idle": added}

    count = min(_SHALLOW, arena.worth(5.0 if full else 2.0))
    return changed(arena, count, silence, tenants=_HOT)


def limited(arena: Arena, *, full: bool) -> Figures:
    """100 tenants before and after each was given a limit, of as many messages at once as there are slots.

    Those take part who can limit each tenant without knowing it beforehand.
    """
    if not arena.contestant.limits:
        raise NotForIt("cannot limit tenants that were not declared")

    def limit(first: int) -> Figures:
        arena.producer().ask("limit", tenants=[f"tenant-{number}" for number in range(TENANTS)], most=16)
        arena.fill(count, tenants=TENANTS, first=first)
        return {"limited": TENANTS}

    count = min(_SHALLOW, arena.worth(5.0 if full else 2.0))
    return changed(arena, count, limit)
