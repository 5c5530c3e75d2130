"""Advice: a policy for the tenant because of whom others waited, with its replayed effect."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlalchemy_fairqueue.reporting.replaying import replay_queues
from sqlalchemy_fairqueue.reporting.replays import Advice
from sqlalchemy_fairqueue.simulation.scenarios import as_recorded
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, Figures
    from sqlalchemy_fairqueue.reporting.objectives import Objective
    from sqlalchemy_fairqueue.reporting.replaying import RecordedQueue
    from sqlalchemy_fairqueue.reporting.replays import Replay

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
