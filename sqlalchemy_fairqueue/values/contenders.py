"""One channel beside those that it competes with: what the reason of a message's wait is decided from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy_fairqueue.values.rates import Rate


class RivalFigures(Protocol):
    """Figures of a channel that takes capacity."""

    @property
    def channel(self) -> str:
        """Its name."""

    @property
    def leased(self) -> int:
        """Its messages that consumers hold."""

    @property
    def weight(self) -> int:
        """As in its policy."""


class ContenderFigures(RivalFigures, Protocol):
    """Figures of a channel that waits."""

    @property
    def paused_at(self) -> datetime | None:
        """When the channel was paused."""

    @property
    def current_concurrency(self) -> int:
        """How many messages count against max_concurrency."""

    @property
    def max_concurrency(self) -> int | None:
        """As in its policy."""

    @property
    def rate_allows_at(self) -> datetime | None:
        """When its rate allows the next delivery."""

    @property
    def served_cost(self) -> int | None:
        """The cost of its attempts that ended lately."""


class QueueLimitFigures(Protocol):
    """Figures of what holds all channels of a queue back."""

    @property
    def queue(self) -> str:
        """Its name."""

    @property
    def paused_at(self) -> datetime | None:
        """When it was paused."""

    @property
    def consumers(self) -> int:
        """Its consumers; 0: none has a lease."""

    @property
    def current_concurrency(self) -> int | None:
        """How many messages count against max_concurrency."""

    @property
    def max_concurrency(self) -> int | None:
        """Most messages of the whole queue that consumers hold at once."""

    @property
    def rate_allows_at(self) -> datetime | None:
        """When its rate allows the next message."""


class RivalsFigures(Protocol):
    """Figures of the channels that compete."""

    @property
    def channels(self) -> Sequence[RivalFigures]:
        """Channels, with those that have the most messages out among them."""

    @property
    def leased(self) -> int:
        """Messages of the queue that consumers hold."""

    @property
    def rival_weight(self) -> int:
        """The weights of the channels that compete, together."""

    @property
    def served_cost(self) -> int | None:
        """The cost of the attempts of all channels that ended lately."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A channel with messages out.

    Attributes:
        channel: Its name.
        leased: Its messages that consumers hold.
        weight: As in its policy.
    """

    channel: str
    leased: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A channel beside those that it competes with.

    Attributes:
        channel: Its name.
        leased: Its messages that consumers hold, among those that were counted.
        weight: As in its policy.
        paused_at: When the channel was paused, in UTC. None: it is not.
        current_concurrency: How many messages count against max_concurrency.
        max_concurrency: As in its policy.
        rate: As in its policy.
        rate_allows_at: When its rate allows the next delivery, in UTC. None: it has no rate.
        served_cost: As of ChannelDemand.
        backlog: Ready and scheduled messages.
        oldest_ready_at: Since when the oldest of the ready messages waits, in UTC. None: nothing is ready.
        last_dequeue_at: When it was last served, in UTC. None: never.
    """

    channel: str
    leased: int
    weight: int
    paused_at: datetime | None
    current_concurrency: int
    max_concurrency: int | None
    rate: Rate | None
    rate_allows_at: datetime | None
    served_cost: int | None
    backlog: int
    oldest_ready_at: datetime | None
    last_dequeue_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContention:
    """The contention that one channel of a queue meets, read up to a bound, and the limits of the queue.

    Attributes:
        queue: Name of the queue.
        contender: The channel.
        channels: The channels with the most messages out.
        leased: Messages of the queue that consumers hold, up to the bound.
        rival_weight: The weights of the channels that compete, together, up to the bound.
        served_cost: As of Contention.
        paused_at: When the queue was paused, in UTC. None: it is not.
        current_concurrency: As of QueueStats.
        max_concurrency: As of QueueStats.
        rate_allows_at: As of QueueStats.
        consumers: Whether a consumer has a lease that has not ended: 1 or 0.
    """

    queue: str
    contender: Contender
    channels: tuple[Rival, ...]
    leased: int
    rival_weight: int
    served_cost: int | None
    paused_at: datetime | None
    current_concurrency: int | None
    max_concurrency: int | None
    rate_allows_at: datetime | None
    consumers: int
