"""The SQL functions beside the unfair bound: batches, single messages, costs, depth, snapshots."""

import contextlib
from collections.abc import Mapping

import pytest

from tests.bench.figures import Alternate, Figure, Report, Rounds
from tests.bench.loads import Load, add, consume, tasks
from tests.bench.meter import read_meter
from tests.bench.processes import Task, each_once, figures_of, measured, rate_within, send_out, total
from tests.bench.stage import Stage, connected

_BATCH = 100
_CONSUMERS = 2
_CHANNELS = 1_000
_BOUND = "the unfair bound"


def _drained(
    stage: Stage, filled: str, load: Load, consumers: int = _CONSUMERS, messages: int | None = None
) -> Mapping[str, float]:
    """Let consumers take and complete what a clone of a filled database has."""
    with stage.clone(filled) as conninfo, connected(conninfo) as wire:
        before = read_meter(wire)
        watches = send_out(tasks(consumers, consume, Load(load.side, conninfo, load.limit, load.enough)))
        used = read_meter(wire).since(before)
    each_once(watches, messages=messages)
    return figures_of(watches) | used.by(total(watches))


def _costs(found: Rounds, *sides: str) -> dict[str, str]:
    """Return what a message costs each side."""
    names = ("server us", "log bytes/message", "dead rows/message")
    return {name: " and ".join(f"{found.told(side, name)} ({side})" for side in sides) for name in names}


@pytest.mark.parametrize("weight", [1, 4, 16])
def test_batches(stage: Stage, report: Report, alternate: Alternate, weight: int, *, full: bool) -> None:
    """Two consumers empty 1,000 channels at 0.6 of the speed of one that knows no channels, by turns of *weight*."""
    messages = 500_000 if full else 50_000
    sides = ("fair", "plain")
    filled = {side: stage.fill(side, channels=_CHANNELS, messages=messages, weight=weight) for side in sides}
    found = alternate(sides, lambda side: _drained(stage, filled[side], Load(side, "", _BATCH), messages=messages))
    what = f"lease and complete by {_BATCH}, turns of {weight}, {messages:,} messages"
    report.add(found.compare(what, "messages/s", sides, _BOUND, 0.6, notes=_costs(found, *sides)))


@pytest.mark.parametrize("limit", [1, 100, 1_000])
def test_by_cost_beside_by_count(stage: Stage, report: Report, alternate: Alternate, limit: int, *, full: bool) -> None:
    """A queue that shares by cost is at least 0.9 as fast as one that shares by count, whatever the batch."""
    messages = (200_000 if full else 20_000) // (10 if limit == 1 else 1)
    sides = ("cost", "messages")
    filled = {side: stage.fill(channels=_CHANNELS, messages=messages, fair_by=side) for side in sides}
    found = alternate(sides, lambda side: _drained(stage, filled[side], Load("fair", "", limit), messages=messages))
    what = f"lease and complete by {limit:,}, a queue by cost, {messages:,} messages"
    report.add(found.compare(what, "messages/s", sides, "by count", 0.9, notes=_costs(found, *sides)))


@pytest.mark.parametrize("consumers", [2, 4])
def test_one_at_a_time(stage: Stage, report: Report, alternate: Alternate, consumers: int, *, full: bool) -> None:
    """Dequeue one and complete one, beside the unfair bound."""
    sides = ("fair", "plain")
    enough = (40_000 if full else 2_000) // consumers
    filled = {side: stage.fill(side, channels=_CHANNELS, messages=200_000 if full else 20_000) for side in sides}
    found = alternate(sides, lambda side: _drained(stage, filled[side], Load(side, "", 1, enough), consumers))
    what = f"one at a time, {consumers} consumers"
    report.add(found.compare(what, "messages/s", sides, _BOUND, notes=_costs(found, *sides)))


def test_in_and_out(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Enqueue one, dequeue one and complete one, beside the unfair bound."""
    seconds = 30.0 if full else 4.0
    sides = ("fair", "plain")
    filled = {side: stage.fill(side, channels=_CHANNELS, messages=2_000) for side in sides}

    def measure(side: str) -> Mapping[str, float]:
        with stage.clone(filled[side]) as conninfo:
            load = Load(side, conninfo, 1, seconds=seconds, channels=_CHANNELS)
            return measured(tasks(_CONSUMERS, consume, load))

    found = alternate(sides, measure)
    what = "an enqueue with its dequeue and completion, one at a time"
    report.add(found.compare(what, "messages/s", sides, _BOUND))


def test_a_hundred_times_as_many_channels(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """A message costs about the same among 100,000 channels and 5 million messages as among 1,000 and 500,000."""
    large, small = ((100_000, 5_000_000), (1_000, 500_000)) if full else ((20_000, 400_000), (1_000, 40_000))
    shape = {"many": large, "few": small}
    filled = {side: stage.fill(channels=channels, messages=messages) for side, (channels, messages) in shape.items()}
    # The same number of messages is taken on both sides, from the whole depth.
    enough = shape["few"][1] // _CONSUMERS

    def measure(side: str) -> Mapping[str, float]:
        figures = _drained(stage, filled[side], Load("fair", "", _BATCH, enough))
        return {"us": 1e6 / figures["messages/s"], **figures}

    found = alternate(("many", "few"), measure)
    notes = _costs(found, "many", "few")
    what = f"cost a message with {shape['many'][0]:,} channels, the first {shape['few'][1]:,} messages"
    against = f"{shape['few'][0]:,} channels"
    report.add(found.compare(what, "us", ("many", "few"), against, 1.25, better="less", notes=notes))


def _first_and_last(tasks_of_all: list[Task], seconds: float, part: float, *, held: str) -> Mapping[str, float]:
    """Return the rates of the first and the last part of the time, with a snapshot of the database *held* open."""
    with contextlib.ExitStack() as stack:
        if held:
            watcher = stack.enter_context(connected(held))
            watcher.run("begin isolation level repeatable read; select 1")
        watches = send_out(tasks_of_all)
    each_once(watches)
    first, last = rate_within(watches, 0, part), rate_within(watches, seconds - part, seconds)
    return {"first": first, "last": last, "ratio": last / first}


def test_an_open_snapshot(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """With one snapshot held open all the time, the last sixth of the time sees what the first saw."""
    seconds = 60.0 if full else 15.0
    filled = {side: stage.fill(side, channels=_CHANNELS, messages=50_000) for side in ("fair", "plain")}

    def measure(side: str) -> Mapping[str, float]:
        with stage.clone(filled[side]) as conninfo:
            load = Load(side, conninfo, _BATCH, seconds=seconds, channels=_CHANNELS)
            return _first_and_last(tasks(_CONSUMERS, consume, load), seconds, seconds / 6, held=conninfo)

    found = alternate(("fair", "plain"), measure)
    what = f"a snapshot open for {seconds:.0f} s, consumers that enqueue too: the last sixth"
    notes = {_BOUND: found.told("plain", "ratio")}
    first, last = found.of("fair", "first"), found.of("fair", "last")
    report.add(Figure(what, "messages/s", last, first, "the first", 0.85, notes=notes))


def test_a_producer_under_an_open_snapshot(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Consumers and a producer of large transactions together: the snapshot takes nothing from the last fifth."""
    seconds = 40.0 if full else 15.0
    filled = stage.fill(channels=500, messages=100_000)

    def measure(side: str) -> Mapping[str, float]:
        with stage.clone(filled) as conninfo:
            both = tasks(_CONSUMERS, consume, Load("fair", conninfo, _BATCH, seconds=seconds))
            both += tasks(1, add, Load("fair", conninfo, 2_000, seconds=seconds, channels=500))
            return _first_and_last(both, seconds, seconds / 5, held=conninfo if side == "held" else "")

    found = alternate(("held", "none"), measure)
    what = f"a snapshot open for {seconds:.0f} s, consumers beside a producer of 2,000 at once: the last fifth"
    notes = {"without the snapshot": found.told("none", "ratio")}
    first, last = found.of("held", "first"), found.of("held", "last")
    report.add(Figure(what, "messages/s", last, first, "the first", 0.9, notes=notes))
