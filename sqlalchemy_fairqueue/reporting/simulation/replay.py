"""Replays one queue's history under a scenario; the result is a history too.

The replay takes a trace from the history: the arrivals of messages and the durations of attempts, but not the order of
service. A message arrives when it was enqueued, and is ordered in its channel by the time when it became ready. Each
further attempt follows the previous one after the recorded delay. The message of an attempt that expired or was
released is leased as long as recorded, and occupies no worker. A replay cannot know what the history lacks: commit
times of enqueues, messages without an ended attempt, ordering keys, and, without a column ``priority``, priorities.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.columns import HISTORY, PRIORITY, TIME, numbers, recorded_costs
from sqlalchemy_fairqueue.reporting.simulation.simulator import simulate
from sqlalchemy_fairqueue.reporting.simulation.state import (
    FIRST_TAG,
    NEVER,
    Attempt,
    Channel,
    CostState,
    Dispatcher,
    Message,
    Selection,
    Tag,
    Worker,
    WorkerPool,
    compiled,
    fill,
    objects,
    records,
)
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy

    Numbers = NDArray[np.int64]

UNHANDLED = ("expired", "released")


class Trace(NamedTuple):
    """The work of a queue, as input of the simulator; times are microseconds.

    Attributes:
        history: The recorded attempts, in the order of *attempts*.
        channels: Names of the channels, in the order of their ids.
        messages: A record array of Message.
        attempts: A record array of Attempt.
        arrivals: The indexes of the messages in *messages*, in the order in which the messages arrive.
        begin: When the first attempt began; the simulator's workers begin then.
        channel_of: For each attempt, the index of its channel in *channels*.
        ready: When each attempt became ready. *started* is never before it, and *finished* never before *started*.
    """

    history: pa.Table
    channels: list[str]
    messages: Any
    attempts: Any
    arrivals: Numbers
    begin: int
    channel_of: Numbers
    ready: Numbers
    started: Numbers
    finished: Numbers


def trace_of(history: pa.Table) -> Trace:
    """Return the trace of a history; raise InvalidArgument if a row occurs twice, or a message is in two channels."""
    message_ids, started = numbers(history, "message_id"), numbers(history, "started_at")
    ids = numbers(history, "id")
    order = np.lexsort((ids, started, message_ids))
    history = history.take(pa.array(order))
    message_ids, started, ids = message_ids[order], started[order], ids[order]
    ready, finished = numbers(history, "ready_at"), numbers(history, "finished_at")
    channel_of = np.unique(numbers(history, "channel_id"), return_inverse=True)[1]

    is_first = np.ones(len(order), bool)
    is_first[1:] = message_ids[1:] != message_ids[:-1]
    again = ~is_first[1:]
    _check(history, ids, (channel_of[1:] != channel_of[:-1]) & again, message_ids)

    first = np.flatnonzero(is_first)
    attempts = records(Attempt, len(order))
    attempts["service"] = np.maximum(finished - started, 0)
    attempts["unhandled"] = pc.is_in(history["outcome"], value_set=pa.array(UNHANDLED)).to_numpy()
    attempts["delay"][:-1] = np.where(again, np.maximum(ready[1:] - finished[:-1], 0), 0)

    messages = records(Message, len(first))
    messages["tie_breaker"] = np.arange(len(first))
    messages["attempt"] = first
    messages["stop"][:-1] = first[1:]
    messages["stop"][-1:] = len(order)
    messages["channel"] = channel_of[first]
    # If the history lacks a message's first attempts, the message arrives when it became ready for the first one known.
    is_whole = numbers(history, "attempt")[first] == 1
    enqueued = np.minimum(numbers(history, "enqueued_at")[first], ready[first])
    messages["arrives_at"] = np.where(is_whole, enqueued, ready[first])
    messages["sort_key"] = ready[first]
    if PRIORITY in history.column_names:
        priority = numbers(history, PRIORITY)[first]
        messages["sort_key"] = np.where(is_whole & (priority > 0), -priority, messages["sort_key"])

    _, names_at = np.unique(channel_of, return_index=True)
    return Trace(
        history=history, channels=history["channel"].take(pa.array(names_at)).to_pylist(), messages=messages,
        attempts=attempts, arrivals=np.argsort(messages["arrives_at"], kind="stable"), begin=int(started.min()),
        channel_of=channel_of, ready=ready, started=np.maximum(started, ready),
        finished=np.maximum(np.maximum(finished, started), ready),
    )  # fmt: skip


def _check(history: pa.Table, ids: Numbers, moved: NDArray[np.bool_], message_ids: Numbers) -> None:
    queue = history["queue"][0].as_py()
    in_order = np.sort(ids)
    twice = in_order[1:][in_order[1:] == in_order[:-1]]
    if len(twice):
        raise InvalidArgument(
            f"row {twice[0]} of the history of queue {queue!r} is there more than once; read each row once, and replay "
            "the history of one database at a time"
        )
    if moved.any():
        at = int(np.flatnonzero(moved)[0])
        one, other = (history["channel"][index].as_py() for index in (at, at + 1))
        raise InvalidArgument(
            f"message {message_ids[at]} of queue {queue!r} is in channel {one!r} and in channel "
            f"{other!r}; replay the history of one database at a time"
        )


_QUARTERS = 4
_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a queue's workers: how many messages they handle at once.

    *backlogged* is the time for which it was measured, in microseconds; zero: it was not measured. *least* and
    *greatest* are the capacities in the quarters of that time with the least and the greatest capacity.
    """

    workers: float
    backlogged: int
    least: float
    greatest: float


def capacity_of(trace: Trace, policies: Mapping[str, ChannelPolicy]) -> Capacity:
    """Estimate how many messages the workers of a history handle at once while they have enough to do.

    *most* is the greatest number of messages that were leased at once. A stretch of backlog is a time in which at least
    *most* messages wait. Fewer waiting messages do not show that all workers are busy, since idle workers may be
    dequeuing these messages. The estimate is the mean number of leased messages, weighted by time, over all stretches.
    By Little's law (J. D. C. Little, A proof for the queuing formula L = lambda W, 1961), the estimate divided by the
    mean duration is how many messages ended a second.

    - Attempts that expired or were released do not count. Their worker was killed, or gave back what it had prefetched.
    - A message counts from its lease on, even in a prefetch buffer, since its duration is counted from its lease, too.
    - A stretch does not count if fewer than *most* attempts end in it: it may be the beginning of a burst.
    - Waiting messages of a channel with a rate, or at its ``max_concurrency``, do not count: that may be why they wait.

    If no stretch counts, the history shows no shortage of workers, and the estimate is *most*. *policies* are the
    recorded policies by channel; a channel without a policy has no limits.
    """
    ready, started, finished = trace.ready, trace.started, trace.finished
    handled = (trace.attempts["unhandled"] == 0).astype(np.int64)
    none, one = np.zeros_like(handled), np.ones_like(handled)
    times = np.concatenate((ready, started, finished))
    waiting = np.concatenate((one, -one, none))
    if policies:
        leases = np.concatenate((none, one, -one))
        waiting = _without_limited(trace, policies, times, waiting, leases)
    order = np.argsort(times, kind="stable")
    times = times[order]
    # Of several events at one instant, only the state after the last one counts.
    last = np.append(times[1:] != times[:-1], True)
    waits = np.cumsum(waiting[order])[last]
    leased = np.cumsum(np.concatenate((none, handled, -handled))[order])[last]
    ended = np.cumsum(np.concatenate((none, none, handled))[order])[last]
    most = max(1, int(leased.max()))
    spans = np.diff(times[last])
    counted = _stretches(waits[:-1] >= most, np.diff(ended), most)
    spans, leased = spans[counted], leased[:-1][counted]
    total, work = int(spans.sum()), int((leased * spans).sum())
    if work == 0:
        return Capacity(most, 0, most, most)
    quarters = np.minimum((np.cumsum(spans) - spans) * _QUARTERS // total, _QUARTERS - 1)
    widths = np.bincount(quarters, weights=spans)
    means = np.bincount(quarters, weights=leased * spans)[widths > 0] / widths[widths > 0]
    return Capacity(work / total, total, float(means.min()), float(means.max()))


def _stretches(backlogged: NDArray[np.bool_], ended: Numbers, least: int) -> NDArray[np.bool_]:
    begins = backlogged & ~np.append(False, backlogged[:-1])
    number = np.cumsum(begins) - 1
    if not begins.any():
        return backlogged
    ends = np.bincount(number[backlogged], weights=ended[backlogged])
    enough: NDArray[np.bool_] = ends[np.maximum(number, 0)] >= least
    return backlogged & enough


def _without_limited(
    trace: Trace, policies: Mapping[str, ChannelPolicy], times: Numbers, waiting: Numbers, leased: Numbers
) -> Numbers:
    limits = np.full(len(trace.channels), _NO_LIMIT, np.int64)
    for number, name in enumerate(trace.channels):
        policy = policies.get(name)
        if policy is not None and policy.rate is not None:
            limits[number] = 0
        elif policy is not None and policy.max_concurrency is not None:
            limits[number] = policy.max_concurrency
    channel = np.tile(trace.channel_of, 3)
    kind = np.repeat((1, 2, 0), len(trace.channel_of))
    order = np.lexsort((kind, times, channel))
    # After a channel's last event no message waits or is leased, so the sums can continue across channels.
    waits, out = np.cumsum(waiting[order]), np.cumsum(leased[order])
    servable = np.where(out < limits[channel[order]], waits, 0)
    changes = np.empty_like(servable)
    changes[order] = np.diff(servable, prepend=0)
    return changes


# For fewer attempts than this, compiling the simulator takes longer than interpreting it.
_WORTH_COMPILING = 200_000

_MILLISECOND = 1_000
_SECOND = 1_000_000
SCHEMA = pa.schema([pa.field("scenario", pa.string()), *(one for one in HISTORY if one.name != "group")])
"""The columns of a replay: the scenario, and those of a history except for its groups."""


def replay_queue(
    history: pa.Table, scenario: Scenario, policies: Mapping[str, ChannelPolicy] | None = None
) -> pa.Table:
    """Return the history that a queue would have under a scenario. *history* must hold all attempts of the queue.

    *policies* are the recorded policies; a channel without a policy has no limits. The result has a row for each
    attempt: ready, start and end are the replay's; ids count the attempts in the order of their ends; the consumer is
    "worker 1" and so on; error and recorded_xid are null; other columns are as recorded.
    """
    trace = trace_of(history)
    return replayed_trace(trace, scenario, scenario.workers or capacity_of(trace, policies or {}).workers)


def replayed_trace(trace: Trace, scenario: Scenario, workers: float) -> pa.Table:
    """Replay a trace, which is not changed; return a row for each attempt, in the order of the trace."""
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
    """Return the attempts of a trace under a scenario, as a record array.

    Args:
        workers: Messages handled at once. None: the scenario's number, else the trace's capacity. 3.6 workers are
            simulated as four, each of which pauses after its messages for 1/9 (4 / 3.6 - 1) of the time that they took.
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
    for policy, members in scenario.policies_of(trace.channels):
        if policy.max_concurrency is not None:
            channels["max_concurrency"][members] = policy.max_concurrency
        if policy.rate is not None:
            channels["rate_interval"][members] = microseconds(policy.rate.interval)
            channels["rate_burst"][members] = policy.rate.burst
        channels["weight"][members] = policy.weight
    return channels


def _set_costs(attempts: Any, trace: Trace, scenario: Scenario) -> None:
    if scenario.fair_by == "cost":
        attempts["cost"] = recorded_costs(trace.history).to_numpy(zero_copy_only=False)
    elif scenario.fair_by == "seconds":
        milliseconds = np.maximum(-(-attempts["service"] // _MILLISECOND), 1)
        # A worker reports 0 for a released message, and nothing if the worker is killed.
        told = np.where(pc.equal(trace.history["outcome"], "released").to_numpy(), 0, -1)
        attempts["took"] = np.where(attempts["unhandled"] == 0, milliseconds, told)


def _cost_state(channels: int, scenario: Scenario) -> CostState:
    greatest_tag: Any = np.array([FIRST_TAG], np.int64)
    tags = records(Tag, channels)
    tags["tie_breaker"] = np.arange(channels)
    arrays = {name: _zeros(channels + 1) for name in ("waiting_heap", "merge_heap", "noted", "tag_heap")}
    return CostState(greatest_tag=greatest_tag, tags=tags, is_timed=scenario.fair_by == "seconds", **arrays)


def _worker_pool(trace: Trace, workers: float, batch: int, requested: int) -> WorkerPool:
    whole = max(1, ceil(workers))
    count = min(whole, len(trace.attempts))
    further = int(trace.attempts["unhandled"].sum())
    entries = records(Worker, count + further)
    entries["tie_breaker"] = np.arange(count + further)
    # Idle workers are taken from the end of the list, so worker 0 stands there.
    idle: Any = np.arange(count)[::-1].copy()
    spare: Any = np.arange(count - 1, count + further)
    spare[0] = further
    return WorkerPool(
        workers=entries, size=count, heap=_zeros(count + further + 1), idle=idle, spare=spare,
        assigned=_zeros(count * batch + further), batch=batch, requested=requested, begin=trace.begin,
        pause=round((whole / workers - 1) * _SECOND),
    )  # fmt: skip


def _ready_times(trace: Trace, started: Any, finished: Any) -> Any:
    ready = np.empty(len(started), np.int64)
    first = trace.messages["attempt"]
    ready[1:] = finished[:-1] + trace.attempts["delay"][:-1]
    # The sort key of a message with a priority is negative, so the message is ready when it arrives.
    ready[first] = np.maximum(trace.messages["arrives_at"], trace.messages["sort_key"])
    return np.minimum(ready, started)


def _zeros(count: int) -> Any:
    return np.zeros(count, np.int64)
