"""Replay of one queue's history under a scenario, as a history of its own."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.reporting.columns import HISTORY, TIME, recorded_costs
from sqlalchemy_fairqueue.reporting.simulation.simulator import simulate
from sqlalchemy_fairqueue.reporting.simulation.state import (
    FIRST_TAG,
    NEVER,
    Channel,
    CostState,
    Dispatcher,
    Selection,
    Tag,
    Worker,
    WorkerPool,
    compiled,
    fill,
    objects,
    records,
)
from sqlalchemy_fairqueue.reporting.simulation.trace import capacity_of, trace_of
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario
    from sqlalchemy_fairqueue.reporting.simulation.trace import Trace
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy

# To compile takes longer than to interpret fewer attempts than this.
_WORTH_COMPILING = 200_000

_MILLISECOND = 1_000
_SECOND = 1_000_000
SCHEMA = pa.schema([pa.field("scenario", pa.string()), *(one for one in HISTORY if one.name != "group")])
"""The columns of a replay: those of a history, but for its groups, and the scenario."""


def replay_queue(
    history: pa.Table, scenario: Scenario, policies: Mapping[str, ChannelPolicy] | None = None
) -> pa.Table:
    """The history of a queue that a scenario would have given.

    Args:
        history: All attempts of one queue.
        scenario: The scenario.
        policies: The policies that the record was made under, by channel; others have no limits.

    Returns:
        A row an attempt. Times are the replay's; ids count the attempts in the order of their ends; the consumer is a
        worker's number; outcomes are the recorded ones; error and recorded_xid are null.
    """
    trace = trace_of(history)
    return replayed_trace(trace, scenario, scenario.workers or capacity_of(trace, policies or {}).workers)


def replayed_trace(trace: Trace, scenario: Scenario, workers: float) -> pa.Table:
    """The same of a trace, which can be replayed under many scenarios.

    Args:
        trace: The trace. It is left as it is.
        scenario: The scenario.
        workers: Messages handled at once.

    Returns:
        A row an attempt, in the order of the trace.
    """
    attempts = simulated_attempts(trace, scenario, workers)
    started, finished = attempts["started"], attempts["finished"]
    ready = _ready_times(trace, started, finished)
    ids = np.empty(len(attempts), np.int64)
    ids[np.lexsort((attempts["order"], finished))] = np.arange(1, len(attempts) + 1)
    consumers = pa.array([f"worker {number + 1}" for number in range(int(attempts["worker"].max()) + 1)])
    recorded = trace.history
    columns: dict[str, Any] = {
        "scenario": pa.repeat(scenario.name, len(attempts)),
        "id": ids,
        "consumer": consumers.take(pa.array(attempts["worker"])),
        "ready_at": pa.array(ready).cast(TIME),
        "started_at": pa.array(started).cast(TIME),
        "finished_at": pa.array(finished).cast(TIME),
        "error": pa.nulls(len(attempts), pa.string()),
        "recorded_xid": pa.nulls(len(attempts), pa.int64()),
        "cost": recorded_costs(recorded),
    }
    return pa.table(
        [columns[one.name] if one.name in columns else recorded[one.name].cast(one.type) for one in SCHEMA],
        schema=SCHEMA,
    )


def simulated_attempts(
    trace: Trace, scenario: Scenario, workers: float | None = None, *, compile_: bool | None = None
) -> Any:
    """The attempts of a trace under a scenario, as a record array.

    Args:
        trace: The trace.
        scenario: The scenario.
        workers: Messages handled at once. None: the scenario names them. For 3.6 workers there are four that each
            handle messages for 0.9 of the time: they pause after each message for a ninth of its duration.
        compile_: Whether to compile the simulator. None: if numba is installed and the trace is long enough.
    """
    count = len(trace.messages)
    batch = min(scenario.batch, count)
    channels = _channels(trace, scenario)
    dispatcher = Dispatcher(
        channels=channels,
        messages=trace.messages.copy(),
        ready_heap=_zeros(len(channels) + 1),
        message_heaps=_zeros(count + len(channels)),
        selections=records(Selection, min(batch, len(channels))),
        max_concurrency=scenario.max_concurrency or NEVER,
    )
    costs = _cost_state(len(channels), scenario) if scenario.discipline == "fair" else None
    pool = _worker_pool(trace, workers or scenario.workers or capacity_of(trace, {}).workers, batch, scenario.batch)
    attempts = trace.attempts.copy()
    _set_costs(attempts, trace, scenario)
    if compile_ is None:
        compile_ = len(attempts) >= _WORTH_COMPILING
    compiled_simulate = compiled(simulate) if compile_ else None
    if compiled_simulate is not None:
        compiled_simulate(tuple(dispatcher), costs and tuple(costs), tuple(pool), trace.arrivals, attempts)
        return attempts
    rows = objects(attempts)
    simulate(
        Dispatcher(*map(objects, dispatcher)), costs and CostState(*map(objects, costs)),
        WorkerPool(*map(objects, pool)), objects(trace.arrivals), rows,
    )  # fmt: skip
    fill(attempts, rows)
    return attempts


def _channels(trace: Trace, scenario: Scenario) -> Any:
    channels = records(Channel, len(trace.channels))
    counts = np.bincount(trace.messages["channel"], minlength=len(channels))
    channels["offset"] = np.cumsum(counts + 1) - counts - 1
    channels["tie_breaker"] = np.arange(len(channels))
    for policy, numbers in scenario.policies_of(trace.channels):
        if policy.max_concurrency is not None:
            channels["max_concurrency"][numbers] = policy.max_concurrency
        if policy.rate is not None:
            channels["rate_interval"][numbers] = microseconds(policy.rate.interval)
            channels["rate_burst"][numbers] = policy.rate.burst
        channels["weight"][numbers] = policy.weight
    return channels


def _set_costs(attempts: Any, trace: Trace, scenario: Scenario) -> None:
    """What attempts cost, as far as it is known at the delivery and at the end.

    By cost, all of it is known when the message is delivered, as if it had been declared. By seconds a worker tells the
    milliseconds of a handler when it ends; one that gives back a message tells 0, and one that is killed tells nothing.
    """
    if scenario.fair_by == "cost":
        attempts["cost"] = recorded_costs(trace.history).to_numpy(zero_copy_only=False)
    elif scenario.fair_by == "seconds":
        milliseconds = np.maximum(-(-attempts["service"] // _MILLISECOND), 1)
        told = np.where(pc.equal(trace.history["outcome"], "released").to_numpy(), 0, -1)
        attempts["took"] = np.where(attempts["unhandled"] == 0, milliseconds, told)


def _cost_state(channels: int, scenario: Scenario) -> CostState:
    greatest_tag: Any = np.array([FIRST_TAG], np.int64)
    tags = records(Tag, channels)
    tags["tie_breaker"] = np.arange(channels)
    return CostState(
        waiting_heap=_zeros(channels + 1),
        merge_heap=_zeros(channels + 1),
        noted=_zeros(channels + 1),
        greatest_tag=greatest_tag,
        tags=tags,
        tag_heap=_zeros(channels + 1),
        is_timed=scenario.fair_by == "seconds",
    )


def _worker_pool(trace: Trace, workers: float, batch: int, requested: int) -> WorkerPool:
    whole = max(1, ceil(workers))
    count = min(whole, len(trace.attempts))
    further = int(trace.attempts["unhandled"].sum())
    entries = records(Worker, count + further)
    entries["tie_breaker"] = np.arange(count + further)
    # Workers are taken from the end of the list, the first one first.
    idle: Any = np.arange(count)[::-1].copy()
    spare: Any = np.arange(count - 1, count + further)
    spare[0] = further
    return WorkerPool(
        workers=entries,
        size=count,
        heap=_zeros(count + further + 1),
        idle=idle,
        spare=spare,
        assigned=_zeros(count * batch + further),
        batch=batch,
        requested=requested,
        begin=trace.begin,
        pause=round((whole / workers - 1) * _SECOND),
    )


def _ready_times(trace: Trace, started: Any, finished: Any) -> Any:
    """The times at which attempts were ready: the first one when due, others a delay after the previous end."""
    ready = np.empty(len(started), np.int64)
    first = trace.messages["attempt"]
    ready[1:] = finished[:-1] + trace.attempts["delay"][:-1]
    # Messages with a priority have a negative due time, and are ready when they arrive.
    ready[first] = np.maximum(trace.messages["arrives_at"], trace.messages["sort_key"])
    return np.minimum(ready, started)


def _zeros(count: int) -> Any:
    return np.zeros(count, np.int64)
