"""Capacity of a queue's workers, estimated from its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sqlalchemy_fairqueue.reporting.simulation.trace import Numbers, Trace
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy

_QUARTERS = 4
_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a queue's workers.

    Attributes:
        workers: Messages handled at once.
        backlogged: Microseconds of backlog in which it was measured; zero: there was no such time, and *workers* is the
            most messages that were handled at once.
        least: The least mean of a quarter of that time.
        greatest: The greatest.
    """

    workers: float
    backlogged: int
    least: float
    greatest: float


def capacity_of(trace: Trace, policies: Mapping[str, ChannelPolicy]) -> Capacity:
    """Estimate how many messages the workers of a history handle at once while they have enough to do.

    The estimate is the mean number of leased messages, weighted by time, over the stretches of backlog. Workers and
    durations then go together: workers / mean duration is the number of messages that the workers did a second, by
    Little's law (J. D. C. Little, A proof for the queuing formula L = lambda W, 1961).

    - A message counts from the start of its attempt to the end. Attempts that expired or were released do not count:
      nobody worked on them, such as those of a killed worker, and those that a worker prefetched and gave back when it
      stopped. A replay lets them take no worker either.
    - A message that waited in a prefetch buffer and was then handled counts from its lease on. The history does not
      tell when its handler began. The buffer makes the mean and the durations greater by the same factor, so that the
      messages done a second are right nevertheless.
    - A backlog is a time in which at least as many messages wait as were ever leased at once: enough for each worker.
      Below that, workers may be idle because a dequeue takes a while.
    - A stretch of backlog counts only if as many attempts end in it. In a shorter one the workers were not busy, but
      about to begin.
    - A channel at its ``max_concurrency`` and a channel with a rate count as without waiting messages: they may wait
      for their policy.

    Without such a stretch the record shows no shortage of workers. The estimate is then the most messages that were
    leased at once.

    Args:
        trace: The trace.
        policies: The policies that the record was made under, by channel; others have no limits.
    """
    ready, started, finished = trace.ready, trace.started, trace.finished
    handled = (trace.attempts["unhandled"] == 0).astype(np.int64)
    none, one = np.zeros_like(handled), np.ones_like(handled)
    times = np.concatenate((ready, started, finished))
    waiting = np.concatenate((one, -one, none))
    if policies:
        leased = np.concatenate((none, one, -one))
        waiting = _without_limited(trace, policies, times, waiting, leased)
    order = np.argsort(times, kind="stable")
    times = times[order]
    # The state after all that happens at one instant.
    last = np.append(times[1:] != times[:-1], True)
    waits = np.cumsum(waiting[order])[last]
    held = np.cumsum(np.concatenate((none, handled, -handled))[order])[last]
    ended = np.cumsum(np.concatenate((none, none, handled))[order])[last]
    most = max(1, int(held.max()))
    spans = np.diff(times[last])
    counted = _stretches(waits[:-1] >= most, np.diff(ended), most)
    spans, held = spans[counted], held[:-1][counted]
    total, work = int(spans.sum()), int((held * spans).sum())
    if work == 0:
        return Capacity(most, 0, most, most)
    quarters = np.minimum((np.cumsum(spans) - spans) * _QUARTERS // total, _QUARTERS - 1)
    widths = np.bincount(quarters, weights=spans)
    means = np.bincount(quarters, weights=held * spans)[widths > 0] / widths[widths > 0]
    return Capacity(work / total, total, float(means.min()), float(means.max()))


def _stretches(backlogged: NDArray[np.bool_], ended: Numbers, least: int) -> NDArray[np.bool_]:
    """The backlogged spans of time that belong to a stretch in which at least *least* attempts end."""
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
    """Changes of the number of waiting messages, without those of channels that their policy may hold back."""
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
    # Each channel ends with none waiting and none leased, so that sums go on from channel to channel.
    waits, held = np.cumsum(waiting[order]), np.cumsum(leased[order])
    servable = np.where(held < limits[channel[order]], waits, 0)
    changes = np.empty_like(servable)
    changes[order] = np.diff(servable, prepend=0)
    return changes
