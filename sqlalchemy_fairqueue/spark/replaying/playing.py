"""Plays a trace under a scenario, and tells what became of it as a history of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlalchemy_fairqueue.spark.replaying.compiling import compiled
from sqlalchemy_fairqueue.spark.replaying.rows import (
    NEVER,
    Attempt,
    Channel,
    Crew,
    Dispatcher,
    Message,
    Pick,
    Worker,
    objects,
    records,
)
from sqlalchemy_fairqueue.spark.replaying.simulator import simulate
from sqlalchemy_fairqueue.spark.replaying.trace import trace_of
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.spark.replaying.scenarios import Scenario
    from sqlalchemy_fairqueue.spark.replaying.trace import Trace

# To compile takes longer than to interpret as many attempts.
_WORTH_COMPILING = 200_000

_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("scenario", pa.string()),
        ("id", pa.int64()),
        ("queue", pa.string()),
        ("channel_id", pa.int64()),
        ("channel", pa.string()),
        ("message_id", pa.int64()),
        ("kind", pa.string()),
        ("consumer", pa.string()),
        ("attempt", pa.int32()),
        ("enqueued_at", _TIME),
        ("ready_at", _TIME),
        ("started_at", _TIME),
        ("finished_at", _TIME),
        ("outcome", pa.string()),
        ("error", pa.string()),
        ("recorded_xid", pa.int64()),
    ]
)
"""The history of a replay: a history's columns, and of which scenario it is."""


def play(history: pa.Table, scenario: Scenario) -> pa.Table:
    """What a queue's history would have been under a scenario.

    Args:
        history: All attempts of one queue.
        scenario: What to replay it under.

    Returns:
        A row an attempt. Times are the replay's; ids count the attempts as they end; the consumer is a worker's number;
        outcomes are the recorded ones; an error and a transaction there is none.
    """
    trace = trace_of(history)
    attempts = attempts_under(trace, scenario)
    started, finished = attempts["started"], attempts["finished"]
    ready = _ready(trace, started, finished)
    ids = np.empty(len(attempts), np.int64)
    ids[np.lexsort((attempts["order"], finished))] = np.arange(1, len(attempts) + 1)
    workers = pa.array([f"worker {number + 1}" for number in range(int(attempts["worker"].max()) + 1)])
    recorded = trace.history
    columns: dict[str, Any] = {
        "scenario": pa.repeat(scenario.name, len(attempts)),
        "id": ids,
        "consumer": workers.take(pa.array(attempts["worker"])),
        "ready_at": pa.array(ready).cast(_TIME),
        "started_at": pa.array(started).cast(_TIME),
        "finished_at": pa.array(finished).cast(_TIME),
        "error": pa.nulls(len(attempts), pa.string()),
        "recorded_xid": pa.nulls(len(attempts), pa.int64()),
    }
    return pa.table(
        [columns[one.name] if one.name in columns else recorded[one.name].cast(one.type) for one in SCHEMA],
        schema=SCHEMA,
    )


def attempts_under(trace: Trace, scenario: Scenario, *, compile_: bool | None = None) -> Any:
    """What becomes of a trace's attempts under a scenario, as a record array.

    Args:
        trace: The work.
        scenario: What to replay it under.
        compile_: Whether to compile the simulator. None: if numba is there and the trace is long enough to be worth it.
    """
    count = len(trace.messages)
    workers = min(scenario.workers or trace.most, len(trace.attempts))
    batch = min(scenario.batch, count)
    channels = _channels(trace, scenario)
    ahead: Any = np.array([NEVER, 1], np.int64)
    desk = Dispatcher(
        channels=channels,
        messages=trace.messages.copy(),
        line=_zeros(len(channels) + 1),
        run=_zeros(count),
        strays=_zeros(count),
        picks=records(Pick, min(batch, len(channels))),
        aside=_zeros(len(channels)),
        ahead=ahead,
        max_concurrency=scenario.max_concurrency or NEVER,
        fair=scenario.discipline == "fair",
    )
    crew = _crew(workers, batch, scenario.batch, trace.begin)
    attempts = trace.attempts.copy()
    if compile_ is None:
        compile_ = len(attempts) >= _WORTH_COMPILING
    fast = compiled(simulate) if compile_ else None
    if fast is not None:
        fast(tuple(desk), tuple(crew), trace.arrivals, attempts)
        return attempts
    slow = objects(Attempt, attempts)
    simulate(_desk_of_objects(desk), _crew_of_objects(crew), trace.arrivals.tolist(), slow)
    for name in ("started", "finished", "worker", "order"):
        attempts[name] = [getattr(attempt, name) for attempt in slow]
    return attempts


def _channels(trace: Trace, scenario: Scenario) -> Any:
    channels = records(Channel, len(trace.channels))
    counts = np.bincount(trace.messages["channel"], minlength=len(channels))
    channels["stop"] = np.cumsum(counts)
    for name in ("offset", "begin", "end"):
        channels[name] = channels["stop"] - counts
    channels["tie"] = np.arange(len(channels))
    for policy, numbers in scenario.policies_of(trace.channels):
        if policy.max_concurrency is not None:
            channels["max_concurrency"][numbers] = policy.max_concurrency
        channels["release_interval"][numbers] = microseconds(policy.release_interval)
        channels["release_burst"][numbers] = policy.release_burst
        channels["weight"][numbers] = policy.weight
    return channels


def _crew(count: int, batch: int, asked: int, begin: int) -> Crew:
    workers = records(Worker, count)
    workers["tie"] = np.arange(count)
    # The first of them is the last in the list, from where they are taken.
    idle: Any = np.arange(count)[::-1].copy()
    hand = _zeros(count * batch)
    return Crew(workers=workers, heap=_zeros(count + 1), idle=idle, hand=hand, batch=batch, asked=asked, begin=begin)


def _ready(trace: Trace, started: Any, finished: Any) -> Any:
    """When each attempt was ready: the first when its message was due, others a delay after the one before."""
    ready = np.empty(len(started), np.int64)
    first = trace.messages["attempt"]
    ready[1:] = finished[:-1] + trace.attempts["delay"][:-1]
    # Prioritised messages are due before all time, and ready when they come.
    ready[first] = np.maximum(trace.messages["arrives_at"], trace.messages["due"])
    return np.minimum(ready, started)


def _zeros(count: int) -> Any:
    return np.zeros(count, np.int64)


def _desk_of_objects(desk: Dispatcher) -> Dispatcher:
    return Dispatcher(
        channels=objects(Channel, desk.channels),
        messages=objects(Message, desk.messages),
        line=[0] * len(desk.line),
        run=[0] * len(desk.run),
        strays=[0] * len(desk.strays),
        picks=objects(Pick, desk.picks),
        aside=[0] * len(desk.aside),
        ahead=[NEVER, 1],
        max_concurrency=desk.max_concurrency,
        fair=desk.fair,
    )


def _crew_of_objects(crew: Crew) -> Crew:
    return Crew(
        workers=objects(Worker, crew.workers),
        heap=[0] * len(crew.heap),
        idle=list(range(len(crew.idle)))[::-1],
        hand=[0] * len(crew.hand),
        batch=crew.batch,
        asked=crew.asked,
        begin=crew.begin,
    )
