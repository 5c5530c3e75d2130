"""Advice: a policy for the tenant because of whom others waited, with its replayed effect."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from sqlalchemy_fairqueue.reporting.replaying import replay_queues
from sqlalchemy_fairqueue.reporting.replays import Advice
from sqlalchemy_fairqueue.simulation.scenarios import as_recorded
from sqlalchemy_fairqueue.values import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, Figures
    from sqlalchemy_fairqueue.reporting.objectives import Objective
    from sqlalchemy_fairqueue.reporting.replaying import RecordedQueue
    from sqlalchemy_fairqueue.reporting.replays import Replay

# A policy is advised if it shortens the victims' mean wait by this part.
_WORTH_IT = 0.1
_PARTS = (2, 4)


def advice_of(
    figures: Figures,
    queues: Sequence[RecordedQueue],
    again: Replay,
    *,
    policies_known: bool,
    objective: Objective | None = None,
) -> tuple[Advice, ...]:
    """Advice for each queue in which tenants were denied their share, or else miss the objective.

    Limits of concurrency are tried for one tenant: the one that got most of what others were denied; where nobody was
    denied, the one that held the workers for longest. They are a half and a quarter of the workers, and one. The one
    that shortens the mean wait of the others most is advised.

    Args:
        figures: The figures of the record.
        queues: The queues.
        again: The replay under the record's own policies, which forecasts are compared with.
        policies_known: Whether the policies of the record are known.
        objective: The target that waits are held against.
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
            found.append(_advice(queue, culprit, names, again, policies_known=policies_known))
    return tuple(found)


def _longest_served(queue: RecordedQueue) -> str:
    """The channel whose attempts took longest in all."""
    trace = queue.trace
    totals = np.bincount(trace.channel_of, weights=trace.finished - trace.started, minlength=len(trace.channels))
    return trace.channels[int(totals.argmax())]


def _advice(
    queue: RecordedQueue, culprit: str, names: Collection[str], again: Replay, *, policies_known: bool
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
    for limit in limits:
        policies = {**queue.policies, culprit: replace(own, max_concurrency=limit)}
        scenario = as_recorded(policies, queue.settings, name=f"max_concurrency={limit}")
        tried = replay_queues([queue], scenario, policies_known=policies_known)
        after = _mean_wait(tried.channels, queue.name, names)
        if after < advice.before * (1 - _WORTH_IT) and (best.after is None or after < best.after):
            best = replace(
                advice, max_concurrency=limit, after=after, own_after=_mean_wait(tried.channels, queue.name, {culprit})
            )
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
