"""Calculates fair shares of channels (by messages or cost), widths of a report's windows of time, and percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlalchemy_fairqueue.reporting import kernel
from sqlalchemy_fairqueue.reporting.figures import ChannelCosts, Culprit, Denial, QueueCosts, Spread
from sqlalchemy_fairqueue.reporting.simulation.state import compiled
from sqlalchemy_fairqueue.times import duration, instant, microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sqlalchemy_fairqueue.reporting.columns import QueueAttempts
    from sqlalchemy_fairqueue.reporting.figures import Policy

    Numbers = NDArray[np.int64]

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
LADDER = (
    *(steps * 10_000 for steps in (1, 2, 5, 10, 20, 50)),
    *(steps * _SECOND for steps in (1, 2, 5, 10, 15, 30)),
    *(steps * _MINUTE for steps in (1, 2, 5, 10, 15, 30)),
    *(steps * _HOUR for steps in (1, 2, 3, 6, 12)),
    *(steps * _DAY for steps in (1, 2, 7, 28)),
)
"""Widths of windows that people read easily, in microseconds; windows begin at round times of UTC."""

_WINDOWS = 240
_FAIRNESS_WINDOWS = 100_000
MESSAGES_A_SHARE = 8
"""Messages that a backlogged channel gets in a window on average; with fewer, rounding would look like unfairness."""


def shown_window(span: int) -> int:
    return rung(span / _WINDOWS)


def fairness_window(span: int, attempts: int, backlogged: int) -> int:
    """Return a width of windows, in microseconds, in which a backlogged channel gets several messages on average.

    *span* is the time from the queue's first event to its last. *backlogged* is the time for which each channel was
    backlogged, summed over the channels. Both are in microseconds.
    """
    return rung(max(MESSAGES_A_SHARE * backlogged / max(attempts, 1), span / _FAIRNESS_WINDOWS))


def rung(width: float) -> int:
    """Round *width* up to a width of ``LADDER``; beyond its last width, round up to a multiple of the last."""
    if width > LADDER[-1]:
        return -int(-width // LADDER[-1]) * LADDER[-1]
    return next(upper for lower, upper in pairwise((0, *LADDER)) if lower < width <= upper or width <= lower)


_PERCENTILES = (500, 950, 990)
_THOUSAND = 1000


def grouped(values: Numbers, ends: Numbers) -> list[tuple[int, ...]]:
    found, begin = [], 0
    for end in ends.tolist():
        found.append(nearest_ranks(values[begin:end]) if end > begin else ())
        begin = end
    return found


def nearest_ranks(values: Numbers) -> tuple[int, ...]:
    """Return the 50th, 95th and 99th percentiles by nearest rank, and the maximum; *values* is reordered."""
    count = len(values)
    ranks = [(count * percentile + _THOUSAND - 1) // _THOUSAND - 1 for percentile in _PERCENTILES]
    values.partition([*ranks, count - 1])
    return (*(int(values[rank]) for rank in ranks), int(values[-1]))


def spread_of(values: Numbers) -> Spread:
    return Spread(*map(duration, nearest_ranks(values)))


# At most _VICTIMS tenants of a queue have culprits, and each of them at most _CULPRITS.
_VICTIMS = 20
_CULPRITS = 3
# Windows by cost are so wide that a backlogged channel gets several messages that cost as much as this quantile.
_DEAR = 0.99
# But they divide a history into about this many at least, unless the windows by messages are wider.
_LEAST_WINDOWS = 20
_AMOUNTS = ("share", "served", "denied", "above", "stretch", "worst")
_WINDOW_NUMBERS = ("stretch_begin", "stretch_end", "worst_begin", "worst_end")


@dataclass(frozen=True, slots=True)
class FairShares:
    """Fair shares of a queue's channels, which are numbered as in *names*.

    Windows are *width* microseconds wide and numbered from 1970 on; *windows* has the numbers of those in which any
    channel was served. *indexes* has Jain's index of each window, NaN if no channels competed in it. *amounts* has the
    messages, or their cost, of each channel.
    """

    names: Sequence[str]
    width: int
    shares: kernel.Shares
    windows: Numbers
    indexes: Any
    amounts: Any

    @property
    def fairness(self) -> float | None:
        return float(self._competed.mean()) if len(self._competed) else None

    @property
    def least_fairness(self) -> float | None:
        return float(self._competed.min()) if len(self._competed) else None

    @property
    def contended(self) -> float:
        return len(self._competed) / len(self.windows)

    @property
    def _competed(self) -> Any:
        return self.indexes[~np.isnan(self.indexes)]

    def share_of(self, number: int) -> float | None:
        return float(self.shares.served[number] / self.shares.share[number]) if self.shares.share[number] else None

    def denial_of(self, number: int) -> Denial | None:
        shares, width = self.shares, self.width
        if not round(shares.denied[number] * width):
            return None
        culprits: list[Culprit] = []
        row = shares.victims[number]
        if row >= 0:
            blame = shares.blame[row]
            greatest = np.argsort(-blame, kind="stable")[:_CULPRITS]
            culprits = [
                Culprit(self.names[other], float(blame[other] / shares.denied[number]))
                for other in greatest
                if blame[other] > 0
            ]
        return Denial(
            from_=instant(int(shares.worst_begin[number]) * width),
            to=instant((int(shares.worst_end[number]) + 1) * width),
            part=float(shares.worst[number] / shares.denied[number]),
            culprits=tuple(culprits),
        )

    def queue_costs(self) -> QueueCosts:
        """Return how evenly the cost was shared. Call it on shares from :meth:`Division.by_costs` only."""
        return QueueCosts(
            cost=int(self.amounts.sum()), fairness=self.fairness, least_fairness=self.least_fairness,
            fairness_window=duration(self.width), contended=self.contended,
        )  # fmt: skip

    def channel_costs(self, number: int) -> ChannelCosts:
        """Return the cost and shares of a channel. Call it on shares from :meth:`Division.by_costs` only."""
        return ChannelCosts(
            cost=int(self.amounts[number]), fair_share=self.share_of(number), denial=self.denial_of(number),
            denied_cost=float(self.shares.denied[number]), above_share=float(self.shares.above[number]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Division:
    """Computes the fair shares of a queue's channels. Without a policy (None) a channel has weight 1 and no limits.

    *compile* says whether numba, if it is installed, compiles the kernel. That pays for long histories.
    """

    attempts: QueueAttempts
    events: kernel.Events
    policies: Sequence[Policy | None]
    compile: bool

    def by_messages(self, backlogged: int) -> FairShares:
        attempts = self.attempts
        return self._divide(fairness_window(attempts.end - attempts.begin, len(attempts.ready), backlogged))

    def by_costs(self, backlogged: int, width: int) -> FairShares | None:
        attempts = self.attempts
        if attempts.cost is None:
            return None
        dear = max(int(np.partition(attempts.cost, at := int((len(attempts.cost) - 1) * _DEAR))[at]), 1)
        wanted = fairness_window(attempts.end - attempts.begin, max(int(attempts.cost.sum()) // dear, 1), backlogged)
        widest = rung((attempts.end - attempts.begin) / _LEAST_WINDOWS)
        return self._divide(max(width, min(wanted, widest)), attempts.cost)

    def _divide(self, width: int, cost: Numbers | None = None) -> FairShares:
        attempts = self.attempts
        services = (
            np.bincount(attempts.channel, weights=attempts.service, minlength=attempts.channels) / attempts.counts
        )
        weights, most = np.ones(attempts.channels), np.full(attempts.channels, np.inf)
        for number, policy in enumerate(self.policies):
            if policy is not None:
                weights[number] = policy.weight
                if policy.rate_interval:
                    most[number] = width // microseconds(policy.rate_interval) + policy.rate_burst
                if policy.max_concurrency is not None and services[number] > 0:
                    most[number] = min(most[number], policy.max_concurrency * width / services[number])
        if cost is None:
            costs: Any = attempts.counts
            sizes = (np.ones(len(attempts.ready), np.int64),) * 2
        else:
            costs = np.bincount(attempts.channel, weights=cost, minlength=attempts.channels)
            # The policy's limits are in messages; the channel's mean cost, at least 1, converts them to cost.
            most *= np.maximum(costs / attempts.counts, 1)
            sizes = (
                cost[np.argsort(attempts.ready, kind="stable")],
                cost[np.argsort(attempts.started, kind="stable")],
            )
        victims: Any = np.full(attempts.channels, -1)
        rows = min((attempts.end - attempts.begin) // width + 2, len(attempts.ready))

        def walk() -> tuple[kernel.Shares, int]:
            shares = kernel.Shares(
                weights=weights, most=most, victims=victims,
                blame=np.zeros((int(victims.max()) + 1, attempts.channels)),
                windows=np.zeros(rows, np.int64), indexes=np.zeros(rows),
                **{name: np.zeros(attempts.channels) for name in _AMOUNTS},
                **{name: np.zeros(attempts.channels, np.int64) for name in _WINDOW_NUMBERS},
            )  # fmt: skip
            fast = compiled(kernel.divide) if self.compile else None
            if fast is not None:
                return shares, int(fast(tuple(self.events), width, tuple(shares), *sizes))
            return shares, kernel.divide(self.events, width, shares, *sizes)

        shares, count = walk()
        worst = np.argsort(-shares.denied / attempts.counts, kind="stable")[:_VICTIMS]
        worst = worst[shares.denied[worst] > 0]
        if len(worst):
            victims[worst] = np.arange(len(worst))
            shares, count = walk()
        return FairShares(attempts.names, width, shares, shares.windows[:count], shares.indexes[:count], costs)
