"""Replays of a history in the process: the queues one after the other, under each scenario.

A replay also tells the effect of advice: a policy for the tenant because of whom others waited.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sqlalchemy_fairqueue.reporting.columns import numbers, queues_of
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, empty_history
from sqlalchemy_fairqueue.reporting.figures import Policy
from sqlalchemy_fairqueue.reporting.measurement import measure_table
from sqlalchemy_fairqueue.reporting.reports import Advice, Replay, ReplayedQueue
from sqlalchemy_fairqueue.reporting.simulation.capacity import capacity_of
from sqlalchemy_fairqueue.reporting.simulation.replay import replayed_trace
from sqlalchemy_fairqueue.reporting.simulation.scenarios import REPLAYED, QueueSettings, as_recorded
from sqlalchemy_fairqueue.reporting.simulation.trace import trace_of
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, Figures
    from sqlalchemy_fairqueue.reporting.history import RecordedHistory
    from sqlalchemy_fairqueue.reporting.reports import Objective
    from sqlalchemy_fairqueue.reporting.simulation.capacity import Capacity
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario
    from sqlalchemy_fairqueue.reporting.simulation.trace import Trace


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


# A policy is advised if it shortens the victims' mean wait by this part.
_WORTH_IT = 0.1
_PARTS = (2, 4)


class _Followers(NamedTuple):
    """The channels of a record that follow a plan, and those that suffer outside of it."""

    plan: str | None
    members: set[str]
    others: set[str]


def advice_of(
    figures: Figures,
    queues: Sequence[RecordedQueue],
    again: Replay,
    *,
    policies_known: bool,
    objective: Objective | None = None,
    plans: Mapping[tuple[str, str], str] | None = None,
) -> tuple[Advice, ...]:
    """Advice for each queue in which tenants were denied their share, or else miss the objective.

    Limits of concurrency are tried for one tenant: the one that got most of what others were denied; where nobody was
    denied, the one that held the workers for longest. They are a half and a quarter of the workers, and one. The one
    that shortens the mean wait of the others most is advised. If others follow the tenant's plan, the same limits are
    tried for all of them; the plan is advised where that shortens the wait of those outside of it by another tenth.

    Args:
        figures: The figures of the record.
        queues: The queues.
        again: The replay under the record's own policies, which forecasts are compared with.
        policies_known: Whether the policies of the record are known.
        objective: The target that waits are held against.
        plans: The plans that channels follow, by queue and channel.
    """
    found = []
    for queue in queues:
        channels = figures.of(queue.name)
        victims: Sequence[ChannelFigures] = [one for one in channels if one.denial and one.denial.culprits]
        if victims:
            culprit = main_culprit(victims)
        elif objective is not None:
            victims, culprit = objective.missed(channels), _longest_served(queue)
        else:
            continue
        names = {one.channel for one in victims} - {culprit}
        if names:
            late = set() if objective is None else {one.channel for one in objective.missed(channels)}
            followers = _followers(queue, culprit, plans or {}, names | late)
            found.append(_advice(queue, culprit, names, again, followers, policies_known=policies_known))
    return tuple(found)


def _longest_served(queue: RecordedQueue) -> str:
    """The channel whose attempts took longest in all."""
    trace = queue.trace
    totals = np.bincount(trace.channel_of, weights=trace.finished - trace.started, minlength=len(trace.channels))
    return trace.channels[int(totals.argmax())]


def _followers(
    queue: RecordedQueue, channel: str, plans: Mapping[tuple[str, str], str], sufferers: set[str]
) -> _Followers | None:
    """The followers of a channel's plan; None: it follows none, is alone, or nobody outside of the plan suffers."""
    plan = plans.get((queue.name, channel))
    if plan is None:
        return None
    members = {name for name in queue.trace.channels if plans.get((queue.name, name)) == plan}
    others = sufferers - members
    return _Followers(plan, members, others) if len(members) > 1 and others else None


def _advice(
    queue: RecordedQueue,
    culprit: str,
    names: set[str],
    again: Replay,
    followers: _Followers | None,
    *,
    policies_known: bool,
) -> Advice:
    trusted = next((one.trusted for one in again.replayed if one.queue == queue.name), False)
    advice = Advice(queue.name, culprit, before=_mean_wait(again.channels, queue.name, names),
                    own_before=_mean_wait(again.channels, queue.name, {culprit}))  # fmt: skip
    if not trusted:
        return replace(advice, reason="a replay of what was is too far from the record to try a policy")
    workers = queue.capacity.workers
    limits = sorted({ceil(workers / part) for part in _PARTS} | {1}, reverse=True)
    own = queue.policies.get(culprit, ChannelPolicy())
    limits = [one for one in limits if one < workers and one < (own.max_concurrency or workers)]
    best = advice
    for plan, members, others in (_Followers(None, {culprit}, names), *([followers] if followers else [])):
        before = _mean_wait(again.channels, queue.name, others)
        # A limit for many tenants has to be worth more than one for a single tenant.
        known = before if best.after is None else min(before, before * (best.after / best.before))
        bound = known * (1 - _WORTH_IT)
        for limit in limits:
            limited = {
                name: replace(queue.policies.get(name, ChannelPolicy()), max_concurrency=limit) for name in members
            }
            scenario = as_recorded({**queue.policies, **limited}, queue.settings, name=f"max_concurrency={limit}")
            tried = replay_queues([queue], scenario, policies_known=policies_known)
            after = _mean_wait(tried.channels, queue.name, others)
            if after < bound and (best.plan != plan or best.after is None or after < best.after):
                best = replace(
                    advice, max_concurrency=limit, before=before, after=after, plan=plan,
                    own_after=_mean_wait(tried.channels, queue.name, {culprit}),
                )  # fmt: skip
    if best.max_concurrency is None:
        tried_limits = ", ".join(map(str, limits))
        reason = (
            f"a max_concurrency of {tried_limits} for it would shorten the others' mean wait by less than "
            f"{_WORTH_IT:.0%}"
            if limits
            else "its messages are handled one at a time already"
        )
        return replace(advice, reason=reason)
    return best


def main_culprit(victims: Iterable[ChannelFigures]) -> str:
    """The channel that got most of what others were denied, by time waited."""
    blame: dict[str, float] = {}
    for one in victims:
        for culprit in one.denial.culprits if one.denial else ():
            waited = one.denied_wait.total_seconds() * one.attempts
            blame[culprit.channel] = blame.get(culprit.channel, 0.0) + waited * culprit.part
    return max(blame, key=lambda name: (blame[name], name))


def _mean_wait(channels: Iterable[ChannelFigures], queue: str, names: Collection[str]) -> timedelta:
    """The mean wait of the attempts of some channels."""
    members = [one for one in channels if one.queue == queue and one.channel in names]
    attempts = sum(one.attempts for one in members)
    return sum((one.mean_wait * one.attempts for one in members), timedelta()) / max(attempts, 1)
