"""Figures of replays, and the policies that replays advise, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, QueueFigures

TRUSTED_ERROR = 0.15
"""The greatest error of a replay of the record itself with which forecasts can be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedQueue:
    """The workers that a replay gives a queue, and how far it is from the record.

    Attributes:
        queue: Name of the queue.
        workers: Messages handled at once.
        estimated: Whether that is the capacity that the history shows, and not a number that the scenario names.
        backlogged: The backlogged time in which the capacity was measured; zero: there was too little of it.
        least_workers: The capacity in the quarter of that time in which it was least.
        greatest_workers: The capacity in the quarter in which it was greatest.
        policies_known: Whether the policies of the record were given.
        settings: The settings of the scenario, in words.
        replay_error: Of a replay under the record's own policies: the mean difference between the replayed and the
            recorded time from ready to finished of an attempt, as a part of the mean recorded time. Else None.
        replay_bias: The same with its sign: negative if the replay is faster.
    """

    queue: str
    workers: float
    estimated: bool
    backlogged: timedelta
    least_workers: float
    greatest_workers: float
    policies_known: bool
    settings: str = ""
    replay_error: float | None = None
    replay_bias: float | None = None

    @property
    def trusted(self) -> bool:
        """Whether the replay is close enough to the record to trust forecasts."""
        return self.replay_error is None or self.replay_error <= TRUSTED_ERROR


@dataclass(frozen=True, slots=True)
class Replay:
    """The figures of a replay, for comparison with the history.

    Attributes:
        name: Its name on the page, like "customer-7 with three workers".
        channels: Figures of the same channels.
        queues: Figures of the same queues, where known.
        replayed: The workers and the error of each queue, where known.
    """

    name: str
    channels: Sequence[ChannelFigures]
    queues: Sequence[QueueFigures] = ()
    replayed: Sequence[ReplayedQueue] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """A policy for the tenant because of whom others waited, with its replayed effect.

    Attributes:
        queue: Name of the queue.
        channel: Name of that tenant.
        before: Mean wait of the others that were denied their share, or else miss the objective, in the replay of the
            record; with a plan, of those that do not follow it.
        own_before: Mean wait of *channel* in it.
        max_concurrency: The policy to set; None: none is advised.
        after: As *before*, with the policy.
        own_after: As *own_before*, with the policy.
        reason: Why none is advised.
        plan: The plan of that tenant, if the policy is for all tenants that follow it; None: it is for that tenant.

    See Also:
        :class:`Report`
    """

    queue: str
    channel: str
    before: timedelta
    own_before: timedelta
    max_concurrency: int | None = None
    after: timedelta | None = None
    own_after: timedelta | None = None
    reason: str = ""
    plan: str | None = None
