"""Figures of queues and channels, as values. Their meanings are in ``template/definitions.toml``, and on the page."""

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
    """Percentiles of ratios, by nearest rank; whole thousandths."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Numbers of attempts by outcome."""

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
        lasted: The time in it in which other channels were served.
        from_: When it began.
        to: When the channel's next attempt began.
    """

    lasted: timedelta
    from_: datetime
    to: datetime


@dataclass(frozen=True, slots=True)
class Culprit:
    """A channel that got what another one was denied.

    Attributes:
        channel: Its name.
        part: The part of the denied messages that it got above its own share.
    """

    channel: str
    part: float


@dataclass(frozen=True, slots=True)
class Denial:
    """The denial of a channel's fair share: when, and because of whom.

    Attributes:
        from_: When the worst stretch of windows in which it was denied its share began.
        to: When that ended.
        part: The part of its denied messages that lies in this stretch.
        culprits: The channels that got most of what it was denied, the greatest part first; known of the twenty
            channels of a queue that were denied most.
    """

    from_: datetime
    to: datetime
    part: float
    culprits: tuple[Culprit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCosts:
    """The costs of a channel's attempts, and its fair share of all costs.

    Attributes:
        cost: Cost of its attempts together.
        fair_share: Served cost / fair share, while it had a backlog; None: it had none.
        denied_cost: The cost by which it got less than its share, over all windows.
        above_share: The cost by which it got more than its share, over all windows.
        denial: When it was denied its share by cost, and because of whom; None: it was not.
    """

    cost: int
    fair_share: float | None
    denied_cost: float
    above_share: float
    denial: Denial | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCosts:
    """The costs of the attempts of a queue, and how evenly they were shared.

    Attributes:
        cost: Cost of all attempts together.
        fairness: Mean of Jain's index by cost over its windows; None: no channels competed.
        least_fairness: The index of its least fair window.
        fairness_window: Width of these windows.
        contended: The part of these windows in which at least two channels competed.
    """

    cost: int
    fairness: float | None
    least_fairness: float | None
    fairness_window: timedelta
    contended: float


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a channel when the report was made, and the plan that it follows. None: no limit, no plan."""

    max_concurrency: int | None = None
    rate_interval: timedelta | None = None
    rate_burst: int = 1
    weight: int = 1
    plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFigures:
    """The figures of a channel.

    Attributes:
        queue: Name of the queue.
        channel: Name of the channel.
        attempts: Attempts that have ended.
        outcomes: Their outcomes.
        wait: From ready to started.
        service: From started to finished.
        slowdown: (wait + service) / service.
        mean_wait: Mean of the waits.
        denied_wait: The part of it that the channel would not have had with its fair share, at least.
        fair_share: Served / fair share, while it had a backlog; None: it had none.
        backlogged: The time in which it had messages ready and not started.
        starved: The part of it in which none of its messages was leased and other channels were served.
        longest_starvation: The longest stretch of that; None: there was none.
        greatest_concurrency: Most of its messages leased at once.
        greatest_rate: Most attempts begun in one second.
        greatest_burst: The least burst that would have allowed its attempts; None: its policy has no rate.
        policy: Its policy; None: not known.
        above_share: Messages that it got above its fair share, over all windows; None: not computed.
        denial: When it was denied its share, and because of whom; None: it was not, or it was not computed.
        by_cost: Its fair share of the costs; None: all attempts of the queue cost the same.
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
        """Whether more of its messages were leased at once than the policy allows now."""
        limit = self.policy.max_concurrency if self.policy else None
        return limit is not None and self.greatest_concurrency > limit

    @property
    def over_rate(self) -> bool:
        """Whether its attempts were faster than the policy allows now."""
        return bool(self.policy and self.greatest_burst and self.greatest_burst > self.policy.rate_burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigures:
    """A queue in one window of time.

    Attributes:
        begin: When it begins.
        started: Attempts begun.
        completed: Attempts that completed their message.
        waiting: Messages that were ready and not started when it ended.
        wait: Waits of the attempts begun; None: there were none.
        fairness: Mean of Jain's index over it; None: no channels competed in it.
    """

    begin: datetime
    started: int
    completed: int
    waiting: int
    wait: Spread | None
    fairness: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """A queue as a whole.

    Attributes:
        queue: Name of the queue.
        from_: When the first of its messages became ready.
        to: When its last attempt ended.
        channels: How many channels were served.
        attempts: Attempts that have ended.
        outcomes: Their outcomes.
        wait: From ready to started.
        service: From started to finished.
        busy: The time in which at least one message was leased.
        greatest_concurrency: Most messages leased at once.
        fairness: Mean of Jain's index over its windows; None: no channels competed.
        least_fairness: The index of its least fair window.
        fairness_window: Width of the windows of the index.
        contended: The part of these windows in which at least two channels competed.
        window: Width of the windows in *windows*.
        windows: Its windows of time.
        by_cost: How evenly the costs were shared; None: all attempts cost the same.
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
    """The channels of a queue that follow one plan, taken together.

    Attributes:
        queue: Name of the queue.
        plan: Name of the plan; None: the channels that follow none.
        channels: How many channels were served.
        attempts: Attempts that have ended.
        part: The part of all attempts of the queue.
        wait: From ready to started.
        mean_wait: Mean of the waits.
        denied_wait: The part of it that the channels would not have had with their fair shares, at least.
        denied_channels: How many of them were denied a part of their fair share.
        service: From started to finished, all attempts together.
        service_part: The part of that of all attempts of the queue.
        cost: Cost of all attempts together; None: all attempts of the queue cost the same.
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
        queues: Queues by name.
        channels: Channels in descending order of denied wait, then mean wait, then by name.
        plans: Plans by queue, in descending order of denied wait; of queues in which a channel follows one.
    """

    queues: tuple[QueueFigures, ...]
    channels: tuple[ChannelFigures, ...]
    plans: tuple[PlanFigures, ...] = ()

    def of(self, queue: str) -> tuple[ChannelFigures, ...]:
        """The channels of a queue, in the same order."""
        return tuple(channel for channel in self.channels if channel.queue == queue)
