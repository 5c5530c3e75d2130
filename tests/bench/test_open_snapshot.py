"""A snapshot that stays open while the queue works: dead row versions pile up."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.figures import Figure, each_once, within
from tests.bench.loads import Consuming, add, consumers, cycle, poll
from tests.bench.processes import send_out
from tests.bench.wire import Wire

if TYPE_CHECKING:
    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_BATCH = 100
_CHANNELS = 1_000
_CONSUMERS = 2
_ADDED = 2_000


def test_throughput_under_an_open_snapshot(stage: Stage, report: Report, rounds: range, *, full: bool) -> None:
    """With one snapshot held open all the time, the last sixth of the time sees what the first saw."""
    seconds = 60.0 if full else 15.0
    # The head pointer that counts slots deadlocks here: completions and enqueues lock channels in different orders.
    sides = ("fair", "lean", "plain")
    filled = {side: stage.fill(side, channels=_CHANNELS, messages=50_000) for side in sides}
    first: dict[str, list[float]] = {side: [] for side in sides}
    last: dict[str, list[float]] = {side: [] for side in sides}

    def measure(side: str) -> None:
        with stage.clone(filled[side]) as conninfo:
            watcher = Wire(conninfo)
            watcher.run("begin isolation level repeatable read; select 1")
            job = Consuming(side, conninfo, limit=_BATCH, seconds=seconds, channels=_CHANNELS)
            watches = send_out(consumers(_CONSUMERS, cycle, job))
            watcher.close()
        each_once(watches)
        first[side].append(within(watches, 0, seconds / 6) / (seconds / 6))
        last[side].append(within(watches, seconds * 5 / 6, seconds) / (seconds / 6))

    for side in sides:
        for _ in rounds if side == "fair" else rounds[:1]:
            measure(side)
    for one in filled.values():
        stage.drop(one)
    report.add(
        Figure(
            f"a snapshot open for {seconds:.0f} s, {_CONSUMERS} consumers that lease, complete and enqueue {_BATCH}",
            "messages/s",
            last["fair"],
            first["fair"],
            "in the first sixth",
            reach=0.85,
            notes={
                f"{name}, first and last sixth": f"{median(first[side]):,.0f} and {median(last[side]):,.0f} messages/s"
                for side, name in (("lean", "head pointer that counts no slots"), ("plain", "the unfair bound"))
            },
        )
    )


def test_a_producer_beside_consumers_under_an_open_snapshot(
    stage: Stage, report: Report, alternate: Alternate, *, full: bool
) -> None:
    """Consumers and a producer of large transactions together: the snapshot takes nothing from the last fifth."""
    seconds = 40.0 if full else 15.0
    fifth = seconds / 5
    filled = stage.fill("fair", channels=500, messages=100_000)
    first: dict[str, list[float]] = {"held": [], "none": []}
    last: dict[str, list[float]] = {"held": [], "none": []}

    def measure(snapshot: str) -> None:
        with stage.clone(filled) as conninfo:
            watcher = Wire(conninfo)
            if snapshot == "held":
                watcher.run("begin isolation level repeatable read; select 1")
            job = Consuming("fair", conninfo, limit=_BATCH, seconds=seconds, channels=500)
            producer = consumers(1, add, replace(job, limit=_ADDED))
            watches = send_out(consumers(_CONSUMERS, poll, job) + producer)
            watcher.close()
        each_once(watches)
        first[snapshot].append(within(watches, 0, fifth) / fifth)
        last[snapshot].append(within(watches, seconds - fifth, seconds) / fifth)

    alternate(measure, ("held", "none"))
    stage.drop(filled)
    without = [one / other for one, other in zip(last["none"], first["none"], strict=True)]
    report.add(
        Figure(
            f"a snapshot open for {seconds:.0f} s, {_CONSUMERS} consumers of {_BATCH}, a producer of {_ADDED} at once",
            "messages/s",
            last["held"],
            first["held"],
            "in the first fifth",
            reach=0.9,
            notes={
                "without the snapshot": f"{median(first['none']):,.0f} and {median(last['none']):,.0f} messages/s,"
                f" ratio {median(without):.3f}, {min(without):.3f} to {max(without):.3f}"
            },
        )
    )
