"""Contention for the consumers of a queue: the channels that wait, the channels that hold messages, the consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy_fairqueue.values.rates import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDemand:
    """A channel that waits for consumers or keeps them busy, at the time of the call.

    Attributes:
        channel: Name of the channel.
        ready: Messages that could be delivered now, as far as time goes.
        scheduled: Messages that are due later.
        leased: Messages that consumers hold.
        current_concurrency: How many messages count against max_concurrency.
        max_concurrency: As in its policy.
        rate: As in its policy.
        weight: As in its policy.
        paused_at: When the channel was paused, in UTC. None: it is not.
        oldest_ready_at: Since when the oldest of the ready messages waits, in UTC. None: nothing is ready.
        last_dequeue_at: When the channel was last served, in UTC. None: never.
        rate_allows_at: When its rate allows the next delivery, in UTC. None: it has no rate.
        served_cost: What its attempts that ended lately cost. None: the queue shares by messages, or records no
            history.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [demand] = queue.admin.contention(engine).channels
        >>> demand.channel, demand.ready, demand.leased, demand.weight
        ('customer-7', 1, 0, 1)
    """

    channel: str
    ready: int
    scheduled: int
    leased: int
    current_concurrency: int
    max_concurrency: int | None
    rate: Rate | None
    weight: int
    paused_at: datetime | None
    oldest_ready_at: datetime | None
    last_dequeue_at: datetime | None
    rate_allows_at: datetime | None
    served_cost: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """The channels of a queue that wait longest and those that hold most messages, and figures of all channels.

    Attributes:
        queue: Name of the queue.
        channels: Those channels, the longest wait first; channels without a ready message come last. Some that have
            scheduled messages alone are among them.
        waiting: How many channels of the queue have ready messages.
        rivals: How many channels compete: those with messages out, and those with ready messages that are not paused,
            at their own limit or held back by their rate.
        rival_weight: The weights of the channels that compete, together.
        leased: Messages of the queue that consumers hold.
        served_cost: What the attempts of all channels that ended lately cost: in the last five minutes, or since the
            oldest of the last 2,000 attempts. None: the queue shares by messages, or records no history.
        waits: The median, the 90th and 99th percentile and the longest of the channels' waits. Empty: nothing is ready.
        paused_at: As of QueueStats.
        current_concurrency: As of QueueStats.
        max_concurrency: As of QueueStats.
        rate_allows_at: As of QueueStats.
        consumers: Whether a consumer has a lease that has not expired.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> contention = queue.admin.contention(engine)
        >>> contention.waiting, contention.rivals, contention.leased
        (1, 1, 0)
    """

    queue: str
    channels: tuple[ChannelDemand, ...]
    waiting: int
    rivals: int
    rival_weight: int
    leased: int
    waits: tuple[timedelta, ...]
    served_cost: int | None = None
    paused_at: datetime | None = None
    current_concurrency: int | None = None
    max_concurrency: int | None = None
    rate_allows_at: datetime | None = None
    consumers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A consumer with a lease that has not expired, at the time of the call.

    Attributes:
        queue: Name of the queue.
        consumer: Its name.
        leased: Messages that it holds, those that wait for a handler too.
        delivered_at: Since when it has held the first of them, in UTC. None: it holds none, or the queue records no
            history.
        message_id: The id of that message; without a history, the least id that it holds. None: it holds none.
        kind: The kind of that message, or None.
        channel: The channel of that message, or None.
        expires_at: When its last lease expires unless it is extended, in UTC.
        waiting_until: Until when it waits for work, in UTC. None: it does not wait.
        stop_requested_at: When it was asked to stop (``queue.admin.stop_worker``), in UTC. None: it was not
            within the last hour, or it took or waited for work more than ten seconds later, as a worker does
            that started under the name after the request.
        stop_requested_by: Who asked, or None.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
        >>> [delivery] = queue.dequeue(engine)
        >>> [consumer] = queue.admin.consumers(engine)
        >>> consumer.leased, consumer.channel, consumer.kind
        (1, 'customer-7', 'parse')
    """

    queue: str
    consumer: str
    leased: int
    delivered_at: datetime | None
    message_id: int | None
    kind: str | None
    channel: str | None
    expires_at: datetime
    waiting_until: datetime | None
    stop_requested_at: datetime | None = None
    stop_requested_by: str | None = None
