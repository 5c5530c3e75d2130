"""Replays a queue under scenarios, and advises a policy for the tenant that made others wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlalchemy_fairqueue.reporting.columns import numbers
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, empty_history
from sqlalchemy_fairqueue.reporting.figures import Policy
from sqlalchemy_fairqueue.reporting.measurement import figures_of, measure_queue
from sqlalchemy_fairqueue.reporting.reports import Advice, Replay, ReplayedQueue
from sqlalchemy_fairqueue.reporting.simulation.replay import Capacity, capacity_of, replayed_trace, trace_of
from sqlalchemy_fairqueue.reporting.simulation.scenarios import REPLAYED, QueueSettings, as_recorded
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures
    from sqlalchemy_fairqueue.reporting.reports import Objective
    from sqlalchemy_fairqueue.reporting.simulation.replay import Trace
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class RecordedQueue:
    """The common input of replays of a queue: its work, its capacity, and the policies that limit or weigh channels."""

    name: str
    trace: Trace
    capacity: Capacity
    policies: Mapping[str, ChannelPolicy]
    settings: QueueSettings = field(default_factory=QueueSettings)


def recorded_queue(
    rows: pa.Table, policies: Mapping[str, ChannelPolicy], settings: QueueSettings | None = None
) -> RecordedQueue:
    trace = trace_of(rows)
    limited = {channel: policy for channel, policy in policies.items() if policy != ChannelPolicy()}
    name: str = rows["queue"][0].as_py()
    return RecordedQueue(name, trace, capacity_of(trace, limited), limited, settings or QueueSettings())


def replay_of(
    queue: RecordedQueue, scenario: Scenario | None, *, policies_known: bool, window: timedelta | None = None
) -> Replay:
    """Replay a queue under a scenario, or under the recorded policies and settings if *scenario* is None."""
    chosen = as_recorded(queue.policies, queue.settings) if scenario is None else scenario
    workers = chosen.workers
    capacity = queue.capacity if workers is None else Capacity(workers, 0, workers, workers)
    table = replayed_trace(queue.trace, chosen, capacity.workers)
    policies = {
        (queue.name, queue.trace.channels[number]): figures_policy(policy)
        for policy, members in chosen.policies_of(queue.trace.channels)
        for number in members
    }
    figures = figures_of([measure_queue(table, policies, window)])
    recorded: Any = queue.trace.finished - queue.trace.ready
    later = numbers(table, "finished_at") - numbers(table, "ready_at") - recorded
    whole = max(float(recorded.sum()), 1.0)
    replayed = ReplayedQueue(
        queue=queue.name, workers=capacity.workers, estimated=workers is None,
        backlogged=duration(capacity.backlogged), least_workers=capacity.least, greatest_workers=capacity.greatest,
        policies_known=policies_known, settings=chosen.settings,
        replay_error=float(np.abs(later).sum()) / whole if scenario is None else None,
        replay_bias=float(later.sum()) / whole if scenario is None else None,
    )  # fmt: skip
    return Replay(REPLAYED if scenario is None else scenario.name, figures.channels, figures.queues, (replayed,))


def merged_replay(name: str, queues: Sequence[Replay]) -> Replay:
    if not queues:
        raise HistoryEmpty(empty_history())
    channels = [channel for one in queues for channel in one.channels]
    channels.sort(key=lambda one: (-one.denied_wait, -one.mean_wait, one.queue, one.channel))
    whole = sorted((queue for one in queues for queue in one.queues), key=lambda one: one.queue)
    replayed = sorted((queue for one in queues for queue in one.replayed), key=lambda one: one.queue)
    return Replay(name, tuple(channels), tuple(whole), tuple(replayed))


def figures_policy(policy: ChannelPolicy, plan: str | None = None) -> Policy:
    rate = policy.rate
    return Policy(
        max_concurrency=policy.max_concurrency,
        rate_interval=None if rate is None else rate.interval,
        rate_burst=1 if rate is None else rate.burst,
        weight=policy.weight,
        plan=plan,
    )


# A limit is advised if it shortens the victims' mean wait by more than this fraction.
_WORTH_IT = 0.1
_PARTS = (2, 4)


class _Followers(NamedTuple):
    plan: str | None
    members: set[str]
    others: set[str]


def advice_of(
    channels: Sequence[ChannelFigures],
    queue: RecordedQueue,
    again: Replay,
    *,
    policies_known: bool,
    objective: Objective | None = None,
    plans: Mapping[str, str] | None = None,
) -> Advice | None:
    """Return advice for a queue: a limit for the culprit or for its plan, or the reason why no limit is advised.

    The culprit is the tenant that received most of what others were denied. If nobody was denied anything, the culprit
    is the tenant that occupied the workers longest. :class:`Advice` says which tenants are the others, whose waits the
    limit should shorten. If there are no others, None is returned.

    If *again*, the replay under the recorded policies, is trusted, three limits of concurrency are tried for the
    culprit: half of the workers, a quarter of the workers, and 1. A limit is tried only if it is below the number of
    workers and the culprit's present limit. Of the limits that shorten the others' mean wait (``Advice.before``) by
    more than a tenth, the limit that shortens it most is advised.

    If other channels follow the culprit's plan, the limits are also tried for the whole plan. Each limit leaves a
    fraction of the others' mean wait: ``Advice.after / Advice.before``. The plan's limit is advised instead of the
    culprit's limit if the plan's fraction is below nine tenths of the culprit's fraction.
    """
    late = () if objective is None else objective.missed(channels)
    victims: Sequence[ChannelFigures] = [one for one in channels if one.denial and one.denial.culprits]
    culprit = main_culprit(victims) if victims else _longest_served(queue)
    names = {one.channel for one in victims or late} - {culprit}
    if not names:
        return None
    followers = _followers(queue, culprit, plans or {}, names | {one.channel for one in late})
    return _advice(queue, culprit, names, again, followers, policies_known=policies_known)


def _longest_served(queue: RecordedQueue) -> str:
    trace = queue.trace
    totals = np.bincount(trace.channel_of, weights=trace.finished - trace.started, minlength=len(trace.channels))
    return trace.channels[int(totals.argmax())]


def _followers(queue: RecordedQueue, channel: str, plans: Mapping[str, str], sufferers: set[str]) -> _Followers | None:
    plan = plans.get(channel)
    if plan is None:
        return None
    members = {name for name in queue.trace.channels if plans.get(name) == plan}
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
    advice = Advice(
        queue.name, culprit, before=_mean_wait(again, names), own_before=_mean_wait(again, {culprit}),
    )  # fmt: skip
    if not again.replayed[0].trusted:
        return replace(advice, reason="a replay of what was is too far from the record to try a policy")
    workers = queue.capacity.workers
    limits = sorted({ceil(workers / part) for part in _PARTS} | {1}, reverse=True)
    own = queue.policies.get(culprit, ChannelPolicy())
    limits = [one for one in limits if one < workers and one < (own.max_concurrency or workers)]
    best = advice
    for plan, members, others in (_Followers(None, {culprit}, names), *([followers] if followers else [])):
        before = _mean_wait(again, others)
        # A limit for all tenants of a plan must shorten the wait by more than a limit for one tenant does.
        known = before if best.after is None else min(before, before * (best.after / best.before))
        bound = known * (1 - _WORTH_IT)
        for limit in limits:
            limited = {
                name: replace(queue.policies.get(name, ChannelPolicy()), max_concurrency=limit) for name in members
            }
            scenario = as_recorded({**queue.policies, **limited}, queue.settings, name=f"max_concurrency={limit}")
            tried = replay_of(queue, scenario, policies_known=policies_known)
            after = _mean_wait(tried, others)
            if after < bound and (best.plan != plan or best.after is None or after < best.after):
                best = replace(
                    advice, max_concurrency=limit, before=before, after=after, plan=plan,
                    own_after=_mean_wait(tried, {culprit}),
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
    blame: dict[str, float] = {}
    for one in victims:
        for culprit in one.denial.culprits if one.denial else ():
            waited = one.denied_wait.total_seconds() * one.attempts
            blame[culprit.channel] = blame.get(culprit.channel, 0.0) + waited * culprit.part
    return max(blame, key=lambda name: (blame[name], name))


def _mean_wait(replay: Replay, names: Collection[str]) -> timedelta:
    members = [one for one in replay.channels if one.channel in names]
    attempts = sum(one.attempts for one in members)
    return sum((one.mean_wait * one.attempts for one in members), timedelta()) / max(attempts, 1)
