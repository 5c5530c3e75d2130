"""Costs of an enqueue for the transaction that it is part of, and for those beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.bench.field.fairness import percentile

if TYPE_CHECKING:
    from tests.bench.field.arena import Arena
    from tests.bench.field.workloads.measures import Figures

_CLIENTS: Final = 8


def business_5ms(arena: Arena, *, full: bool) -> Figures:
    """8 clients of one tenant: insert a row, enqueue, work for 5 ms, commit; against the same without the enqueue."""
    return _business(arena, 0.005, 100 if full else 25)


def business_2s(arena: Arena, *, full: bool) -> Figures:
    """The same with transactions of 2 s: who locks something of the tenant at the enqueue stands in line."""
    return _business(arena, 2.0, 3 if full else 1)


def _business(arena: Arena, seconds: float, each: int) -> Figures:
    with arena.connected() as wire:
        wire.run("create table business (id bigint generated always as identity primary key, content text)")
    found = {}
    # First to warm up connections and plans.
    for name, count, with_message in (("", 1, True), ("without", each, False), ("with", each, True)):
        told = arena.producer().ask("transact", clients=_CLIENTS, each=count, sleep=seconds, enqueue=with_message)
        found[name] = [1e3 * (taken - seconds) for taken in told["taken"]], len(told["taken"]) / told["seconds"]
    (alone, alone_rate), (taken, rate) = found["without"], found["with"]
    return {
        "transactions/s": rate,
        "to without": rate / alone_rate,
        "beside its work, p50 ms": percentile(taken, 50),
        "beside its work, p99 ms": percentile(taken, 99),
        "without, p50 ms": percentile(alone, 50),
        "without, p99 ms": percentile(alone, 99),
    }
