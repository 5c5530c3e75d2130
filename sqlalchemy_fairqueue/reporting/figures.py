"""Figures of queues and channels. ``template/definitions.toml`` defines them; a report's page shows its definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of durations, by nearest rank."""

    p50: timedelta
    p95: timedelta
    p99: timedelta
    max: timedelta


@dataclass(frozen=True, slots=True)
class Ratios:
    """Percentiles of ratios, by nearest rank, each rounded down to a thousandth."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How many attempts ended with each outcome."""

    completed: int = 0
    retried: int = 0
    released: int = 0
    buried: int = 0
    expired: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class Starvation:
    """The longest stretch in which a channel was starved.

    Attributes:
        lasted: How long other channels were served between *from_* and *to*.
        from_: The beginning of the stretch.
        to: When the channel's next attempt began, which ended the stretch.
    """

    lasted: timedelta
    from_: datetime
    to: datetime


@dataclass(frozen=True, slots=True)
class Culprit:
    """A channel that received more than its share while another channel, the victim, was denied messages of its share.

    *part* is the fraction of the victim's denied messages that is ascribed to this channel. In :class:`ChannelCosts`,
    *part* is the fraction of the victim's denied cost.
    """

    channel: str
    part: float


@dataclass(frozen=True, slots=True)
class Denial:
    """When a channel was denied messages of its fair share, and because of whom.

    A stretch begins and ends with a fairness window in which the channel was denied messages. It may contain
    single fairness windows without denied messages, but never two in a row. In :class:`ChannelCosts`, "messages" stands
    for the cost of messages.

    Attributes:
        from_: The beginning of the worst stretch, in which the most messages were denied; *to* is its end.
        part: The fraction of the channel's denied messages that falls into the worst stretch.
        culprits: At most three channels, to which the most denied messages are ascribed, the greatest part first. Only
            the twenty channels of a queue that have the greatest ratio of denied messages to attempts have culprits.
    """

    from_: datetime
    to: datetime
    part: float
    culprits: tuple[Culprit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCosts:
    """The cost of a channel's attempts, and the channel's shares of the cost of the queue.

    *denied_cost* is the cost by which the channel got less than its share, summed over all fairness windows. The other
    fields are as in :class:`ChannelFigures`, but for shares of cost instead of messages.
    """

    cost: int
    fair_share: float | None
    denied_cost: float
    above_share: float
    denial: Denial | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCosts:
    """The cost of a queue's attempts, and how evenly this cost was shared among the channels.

    The other fields are as in :class:`QueueFigures`, but for shares of cost, whose fairness windows may be wider.
    """

    cost: int
    fairness: float | None
    least_fairness: float | None
    fairness_window: timedelta
    contended: float


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy and plan of a channel when the report was made, or its policy in a replay. None: no limit, no plan."""

    max_concurrency: int | None = None
    rate_interval: timedelta | None = None
    rate_burst: int = 1
    weight: int = 1
    plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFigures:
    """The figures of a channel.

    Attributes:
        wait: From ready to started.
        service: From started to finished.
        slowdown: (wait + service) / service. A divisor below 10 ms counts as 10 ms, and a slowdown below 1 as 1.
        denied_wait: With its fair share, the channel's mean wait would have been shorter by at least this time.
        fair_share: What the channel was served, divided by its fair share, over all windows that began with a backlog
            of the channel. None: there was no such window.
        backlogged: The time in which the channel had ready messages that were not started.
        starved: The part of *backlogged* in which none of its messages was leased while other channels were served.
        greatest_concurrency: The most messages of the channel that were leased at once.
        greatest_rate: Most attempts begun in one second.
        greatest_burst: The ``burst`` that its rate would have needed to allow all of its attempts; None: no rate.
        policy: None if unknown.
        above_share: Messages above its fair share, over all windows; None: not computed.
        denial: When it was denied its share, and because of whom; None: never, or not computed.
        by_cost: Its cost and shares of cost; None: all attempts of the queue cost the same.
    """

    queue: str
    channel: str
    attempts: int
    outcomes: Outcomes
    wait: Spread
    service: Spread
    slowdown: Ratios
    mean_wait: timedelta
    denied_wait: timedelta
    fair_share: float | None
    backlogged: timedelta
    starved: timedelta
    longest_starvation: Starvation | None
    greatest_concurrency: int
    greatest_rate: int
    greatest_burst: int | None = None
    policy: Policy | None = None
    above_share: float | None = None
    denial: Denial | None = None
    by_cost: ChannelCosts | None = None

    @property
    def over_concurrency(self) -> bool:
        """Whether more messages of the channel were leased at once than *policy* allows."""
        limit = self.policy.max_concurrency if self.policy else None
        return limit is not None and self.greatest_concurrency > limit

    @property
    def over_rate(self) -> bool:
        """Whether attempts of the channel began at a higher rate than *policy* allows."""
        return bool(self.policy and self.greatest_burst and self.greatest_burst > self.policy.rate_burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigures:
    """A queue in one window of time.

    Attributes:
        waiting: Messages ready and not started at the end of the window.
        wait: Waits of the attempts that started; None: no attempts.
        fairness: Mean of Jain's index over the fairness windows that begin in this window; None: no channels competed.
            A fairness window is as wide as ``QueueFigures.fairness_window``.
    """

    begin: datetime
    started: int
    completed: int
    waiting: int
    wait: Spread | None
    fairness: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """A queue as a whole; a field with the name of a field of :class:`ChannelFigures` means the same.

    Attributes:
        from_: When its first message became ready.
        to: When its last attempt ended.
        busy: The time in which at least one message was leased.
        fairness: Mean of Jain's index over the fairness windows; None: no channels competed.
        least_fairness: Jain's index in the least fair of the fairness windows.
        fairness_window: The width of the fairness windows, over which fair shares and Jain's index are computed.
        contended: Of the fairness windows in which attempts started, the fraction in which channels competed.
        window: The width of each of *windows*, which show how the queue developed.
    """

    queue: str
    from_: datetime
    to: datetime
    channels: int
    attempts: int
    outcomes: Outcomes
    wait: Spread
    service: Spread
    busy: timedelta
    greatest_concurrency: int
    fairness: float | None
    least_fairness: float | None
    fairness_window: timedelta
    contended: float
    window: timedelta
    windows: tuple[WindowFigures, ...]
    by_cost: QueueCosts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """The channels of a queue that follow one plan, together; :class:`ChannelFigures` explains the other fields.

    Attributes:
        plan: The name of the plan; None: these channels have no plan.
        part: The fraction of the queue's attempts that these channels had.
        denied_channels: How many of the channels were denied a part of their fair share.
        service: Total time from started to finished.
        service_part: The channels' fraction of the queue's service time.
        cost: Total cost; None: all attempts of the queue cost the same.
    """

    queue: str
    plan: str | None
    channels: int
    attempts: int
    part: float
    wait: Spread
    mean_wait: timedelta
    denied_wait: timedelta
    denied_channels: int
    service: timedelta
    service_part: float
    cost: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a history.

    Attributes:
        queues: Sorted by name.
        channels: Sorted by ``denied_wait``, the greatest first; if equal, by ``mean_wait``, the greatest first; then by
            queue and name. :class:`ChannelFigures` explains both waits.
        plans: Sorted by queue, then by ``denied_wait``, the greatest first. Queues without plans are left out.
    """

    queues: tuple[QueueFigures, ...]
    channels: tuple[ChannelFigures, ...]
    plans: tuple[PlanFigures, ...] = ()

    def of(self, queue: str) -> tuple[ChannelFigures, ...]:
        """Return the figures of a queue's channels, in the order of *channels*."""
        return tuple(channel for channel in self.channels if channel.queue == queue)
