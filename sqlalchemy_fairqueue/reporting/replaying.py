"""Replays of a history in the process: the queues one after the other, under each scenario."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlalchemy_fairqueue.reporting.columns import numbers, queues_of
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, empty_history
from sqlalchemy_fairqueue.reporting.figures import Policy
from sqlalchemy_fairqueue.reporting.measurement import measure_table
from sqlalchemy_fairqueue.reporting.replays import Replay, ReplayedQueue
from sqlalchemy_fairqueue.simulation.capacity import capacity_of
from sqlalchemy_fairqueue.simulation.replay import replayed_trace
from sqlalchemy_fairqueue.simulation.scenarios import REPLAYED, QueueSettings, as_recorded
from sqlalchemy_fairqueue.simulation.trace import trace_of
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy_fairqueue.reporting.history import RecordedHistory
    from sqlalchemy_fairqueue.simulation.capacity import Capacity
    from sqlalchemy_fairqueue.simulation.scenarios import Scenario
    from sqlalchemy_fairqueue.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class RecordedQueue:
    """The common input of replays of a queue.

    Attributes:
        name: Its name.
        trace: The work.
        capacity: The capacity that the record shows.
        policies: The policies of the record that limit or weigh channels.
        settings: The settings of the recorded queue.
    """

    name: str
    trace: Trace
    capacity: Capacity
    policies: Mapping[str, ChannelPolicy]
    settings: QueueSettings = field(default_factory=QueueSettings)


def recorded_queues(history: RecordedHistory) -> list[RecordedQueue]:
    """The queues of a history, by name.

    Raises:
        InvalidArgument: A row is there twice, or a message is in two channels.
    """
    known: dict[str, dict[str, ChannelPolicy]] = {}
    for (queue, channel), policy in history.policies.items():
        if policy != ChannelPolicy():
            known.setdefault(queue, {})[channel] = policy
    return [
        recorded_queue(rows, known.get(name, {}), history.settings.get(name))
        for name, rows in queues_of(history.attempts)
    ]


def recorded_queue(
    rows: pa.Table, policies: Mapping[str, ChannelPolicy], settings: QueueSettings | None = None
) -> RecordedQueue:
    """A queue, of its rows, the policies that limit or weigh its channels, and its settings.

    Raises:
        InvalidArgument: A row is there twice, or a message is in two channels.
    """
    trace = trace_of(rows)
    return RecordedQueue(
        rows["queue"][0].as_py(), trace, capacity_of(trace, policies), policies, settings or QueueSettings()
    )


def replay_queues(
    queues: list[RecordedQueue],
    scenario: Scenario | None,
    *,
    policies_known: bool,
    window: timedelta | None = None,
) -> Replay:
    """The figures of a replay of queues.

    Args:
        queues: The queues.
        scenario: The scenario. None: the record's own policies, with the error against the record.
        policies_known: Whether the policies of the record are known.
        window: Width of the windows over time. None: as for the report.
    """
    tables, replayed, policies = [], [], {}
    for queue in queues:
        chosen = as_recorded(queue.policies, queue.settings) if scenario is None else scenario
        table = replayed_trace(queue.trace, chosen, queue.capacity)
        for policy, members in chosen.policies_of(queue.trace.channels):
            for number in members:
                policies[queue.name, queue.trace.channels[number]] = figures_policy(policy)
        replayed.append(_replayed(queue.name, table, chosen, is_record=scenario is None, policies_known=policies_known))
        tables.append(table)
    figures = measure_table(pa.concat_tables(tables), policies=policies, window=window)
    name = REPLAYED if scenario is None else scenario.name
    return Replay(name, figures.channels, figures.queues, tuple(replayed))


def merged_replay(name: str, queues: Sequence[Replay]) -> Replay:
    """The replays of single queues as one of all.

    Raises:
        HistoryEmpty: There is none.
    """
    if not queues:
        raise HistoryEmpty(empty_history())
    channels = [channel for one in queues for channel in one.channels]
    channels.sort(key=lambda one: (-one.denied_wait, -one.mean_wait, one.queue, one.channel))
    whole = sorted((queue for one in queues for queue in one.queues), key=lambda one: one.queue)
    replayed = sorted((queue for one in queues for queue in one.replayed), key=lambda one: one.queue)
    return Replay(name, tuple(channels), tuple(whole), tuple(replayed))


def figures_policy(policy: ChannelPolicy, plan: str | None = None) -> Policy:
    """A policy as the report shows it, with the plan that the channel follows."""
    rate = policy.rate
    return Policy(
        max_concurrency=policy.max_concurrency,
        rate_interval=None if rate is None else rate.interval,
        rate_burst=1 if rate is None else rate.burst,
        weight=policy.weight,
        plan=plan,
    )


def _replayed(
    name: str, table: pa.Table, scenario: Scenario, *, is_record: bool, policies_known: bool
) -> ReplayedQueue:
    recorded: Any = numbers(table, "recorded_response").astype(np.float64)
    later = numbers(table, "finished_at") - numbers(table, "ready_at") - recorded
    whole = max(float(recorded.sum()), 1.0)
    first = table.slice(0, 1).to_pylist()[0]
    return ReplayedQueue(
        queue=name,
        workers=first["workers"],
        estimated=scenario.workers is None,
        backlogged=duration(first["backlogged"]),
        least_workers=first["least_workers"],
        greatest_workers=first["greatest_workers"],
        policies_known=policies_known,
        settings=scenario.settings,
        replay_error=float(np.abs(later).sum()) / whole if is_record else None,
        replay_bias=float(later.sum()) / whole if is_record else None,
    )
