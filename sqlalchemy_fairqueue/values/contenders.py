"""One channel beside those that it competes with: what the reason of a message's wait is decided from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy_fairqueue.values.rates import Rate


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
