"""Waits: the reasons for which channels and messages wait, and who has what they wait for, decided in one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy_fairqueue.values.contention import ChannelDemand, Contention
    from sqlalchemy_fairqueue.values.reports import ChannelStats, QueueStats, SharedLimit

    WaitingChannel: TypeAlias = ChannelDemand | ChannelStats
    LimitedQueue: TypeAlias = QueueStats | Contention

TAKERS = 3
"""Channels that a wait names."""


class Reason(StrEnum):
    """The reasons of a wait. The first one that holds is given: lifting the others would change nothing.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.pause(engine, "customer-7")
        >>> queue.message(engine, message_id).wait.reason is Reason.PAUSED
        True
    """

    QUEUE_PAUSED = "queue paused"
    PAUSED = "paused"
    NO_CONSUMER = "no consumer"
    OWN_LIMIT = "own limit"
    RATE = "rate"
    QUEUE_LIMIT = "queue limit"
    QUEUE_RATE = "queue rate"
    SHARED_LIMIT = "shared limit"
    SHARED_RATE = "shared rate"
    CAPACITY = "capacity"
    """It has the share of the consumers that it is entitled to and more work than that serves, or no other channel has
    messages out: what it lacks is a consumer that takes more."""
    TURN = "others' turn"
    SCHEDULED = "scheduled"


OWN_REASONS = frozenset({Reason.QUEUE_PAUSED, Reason.PAUSED, Reason.OWN_LIMIT, Reason.RATE, Reason.SCHEDULED})
"""Reasons of a channel that does not compete with others for consumers."""
_OF_OTHERS = frozenset({Reason.QUEUE_LIMIT, Reason.QUEUE_RATE, Reason.SHARED_LIMIT, Reason.SHARED_RATE, Reason.TURN})


@dataclass(frozen=True, slots=True)
class Taker:
    """A channel that takes capacity.

    Attributes:
        channel: Its name.
        leased: Its messages that consumers hold.
        share: These as a part of all messages that consumers of the queue hold, 0 to 1.
        entitled: The part that its weight entitles it to, 0 to 1.

    Example:
        >>> queue.configure(engine, max_concurrency=1)
        >>> _, waiting = [queue.enqueue(engine, channel=name, payload=1) for name in ("customer-7", "customer-8")]
        >>> [delivery] = queue.dequeue(engine)
        >>> [taker] = queue.message(engine, waiting.message_id).wait.takers
        >>> taker.channel, taker.leased, taker.share, taker.entitled
        ('customer-7', 1, 1.0, 0.5)
    """

    channel: str
    leased: int
    share: float
    entitled: float


@dataclass(frozen=True, slots=True)
class QueueTaker:
    """A queue that takes of a shared limit.

    Attributes:
        queue: Its name.
        leased: Its messages that consumers hold.

    Example:
        >>> queue.limits.configure(engine, "mail", max_concurrency=2)
        >>> news = Queue("news")
        >>> for each in (queue, news):
        ...     each.configure(engine, limits=["mail"])
        ...     _, waiting = [each.enqueue(engine, channel="customer-7", payload=number) for number in (1, 2)]
        ...     deliveries = each.dequeue(engine, limit=1)
        >>> wait = news.message(engine, waiting.message_id).wait
        >>> [(taker.queue == queue.name, taker.leased) for taker in wait.queues]
        [(True, 1)]
    """

    queue: str
    leased: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason for which a message waits, and who has what it waits for.

    Attributes:
        reason: Why it waits.
        until: When the reason ends at the latest, by a rate or by the time for which it is scheduled. None: that is not
            known.
        takers: The channels of the queue that take the capacity it waits for, the most first. Empty: the reason is its
            own.
        limit: The shared limit that holds it back, or None.
        queues: The other queues that draw from that limit, those with the most messages out first.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> wait = queue.message(engine, message_id).wait
        >>> str(wait.reason), wait.takers
        ('no consumer', ())
    """

    reason: Reason
    until: datetime | None = None
    takers: tuple[Taker, ...] = ()
    limit: str | None = None
    queues: tuple[QueueTaker, ...] = ()


@dataclass(frozen=True, slots=True)
class Tenant:
    """A channel, and why it waits.

    Attributes:
        demand: Its counts and limits.
        wait: How long its oldest ready message waits. None: nothing is ready.
        waits_for: Why it waits. None: it has neither ready nor scheduled messages.
        share: Its messages that consumers hold as a part of all, 0 to 1. None: consumers hold none.
        entitled: The part that its weight entitles it to beside the channels that compete now, 0 to 1. None: something
            of its own holds it back.
        cost_share: What its attempts that ended lately cost, as a part of all, 0 to 1. None: the queue shares by
            messages, or knows of none.
    """

    demand: ChannelDemand | ChannelStats
    wait: timedelta | None
    waits_for: Wait | None
    share: float | None
    entitled: float | None
    cost_share: float | None = None

    @property
    def used(self) -> float | None:
        """The share that it uses of what the queue shares: by cost, or else by messages."""
        return self.share if self.cost_share is None else self.cost_share

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self.demand.channel

    @property
    def reason(self) -> Reason | None:
        """The reason for which it waits. None: it has neither ready nor scheduled messages."""
        return self.waits_for.reason if self.waits_for else None

    @property
    def until(self) -> datetime | None:
        """The time at which the reason ends at the latest. None: that is not known."""
        return self.waits_for.until if self.waits_for else None

    @property
    def takers(self) -> tuple[Taker, ...]:
        """The channels that take the capacity it waits for, the most first. Empty: the reason is its own."""
        return self.waits_for.takers if self.waits_for else ()


def tenants_of(
    stats: QueueStats, contention: Contention, limits: Sequence[SharedLimit], now: datetime
) -> tuple[Tenant, ...]:
    """The channels of a contention with the reasons of their waits, the longest wait first.

    Args:
        stats: The counts of the queue, of the same snapshot.
        contention: The channels.
        limits: The shared limits that the queue draws from.
        now: The time of the snapshot.
    """
    holding = holding_most(contention)
    return tuple(_tenant(stats, contention, limits, demand, now, holding=holding) for demand in contention.channels)


def tenant_of(
    stats: QueueStats, contention: Contention, limits: Sequence[SharedLimit], channel: ChannelStats, now: datetime
) -> Tenant:
    """A channel with the reason of its wait, whether the contention lists it or not. Arguments as of wait_of."""
    return _tenant(stats, contention, limits, channel, now, holding=holding_most(contention))


def wait_of(
    stats: QueueStats,
    contention: Contention,
    limits: Sequence[SharedLimit],
    channel: WaitingChannel,
    now: datetime,
    *,
    holding: Sequence[WaitingChannel] | None = None,
) -> Wait | None:
    """The reason for which a channel waits. None: it has neither ready nor scheduled messages.

    Args:
        stats: The counts of its queue.
        contention: The channels that wait longest and those with the most messages out.
        limits: The shared limits that the queue draws from.
        channel: The channel.
        now: The time of all of these.
        holding: The channels of the contention with the most messages out, where many are decided with it.
    """
    if channel.oldest_ready_at is None:
        return Wait(Reason.SCHEDULED) if channel.scheduled else None
    return wait_of_ready(stats, contention, limits, channel, now, holding=holding)


def wait_of_ready(
    stats: LimitedQueue,
    contention: Contention,
    limits: Sequence[SharedLimit],
    channel: WaitingChannel,
    now: datetime,
    *,
    holding: Sequence[WaitingChannel] | None = None,
) -> Wait:
    """The reason for which a channel waits that has a ready message; arguments as of wait_of."""
    held = next(_holds(stats, limits, channel, now), None) or Wait(_turn(contention, channel))
    if held.reason not in _OF_OTHERS:
        return held
    most = holding_most(contention) if holding is None else holding
    takers = [_taker(one, contention) for one in most if one.channel != channel.channel]
    return Wait(held.reason, held.until, tuple(takers[:TAKERS]), held.limit, held.queues)


def holding_most(contention: Contention) -> Sequence[WaitingChannel]:
    """The channels with the most messages out, one more than a wait names: the channel itself may be among them."""
    return nsmallest(TAKERS + 1, (one for one in contention.channels if one.leased), key=lambda one: -one.leased)


def _holds(
    stats: LimitedQueue, limits: Sequence[SharedLimit], channel: WaitingChannel, now: datetime
) -> Iterator[Wait]:
    """The reasons that hold a channel back, the first one first."""
    checks = (
        (Reason.QUEUE_PAUSED, stats.paused_at is not None, None),
        (Reason.PAUSED, channel.paused_at is not None, None),
        (Reason.NO_CONSUMER, not stats.consumers, None),
        (Reason.OWN_LIMIT, _is_full(channel.current_concurrency, channel.max_concurrency), None),
        (Reason.RATE, _is_later(channel.rate_allows_at, now), channel.rate_allows_at),
        (Reason.QUEUE_LIMIT, _is_full(stats.current_concurrency or 0, stats.max_concurrency), None),
        (Reason.QUEUE_RATE, _is_later(stats.rate_allows_at, now), stats.rate_allows_at),
    )
    yield from (Wait(reason, until) for reason, holds, until in checks if holds)
    full = (one for one in limits if _is_full(one.current_concurrency, one.max_concurrency))
    yield from (Wait(Reason.SHARED_LIMIT, None, (), one.name, _others(one, stats.queue)) for one in full)
    late = (one for one in limits if _is_later(one.rate_allows_at, now))
    yield from (Wait(Reason.SHARED_RATE, one.rate_allows_at, (), one.name, _others(one, stats.queue)) for one in late)


def _is_later(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant > now


def _is_full(current: int, most: int | None) -> bool:
    return most is not None and current >= most


def _others(limit: SharedLimit, queue: str) -> tuple[QueueTaker, ...]:
    of_queues = zip(limit.queues, limit.leased, strict=True)
    others = (QueueTaker(name, leased) for name, leased in of_queues if name != queue)
    return tuple(sorted(others, key=lambda one: -one.leased))


def _turn(contention: Contention, channel: WaitingChannel) -> Reason:
    if contention.leased <= channel.leased:
        # Consumers work for no other one.
        return Reason.CAPACITY
    used = _cost_share(channel, contention)
    if used is None:
        used = channel.leased / contention.leased
    return Reason.CAPACITY if used >= _entitled(channel, contention) else Reason.TURN


def _cost_share(channel: WaitingChannel, contention: Contention) -> float | None:
    return (channel.served_cost or 0) / contention.served_cost if contention.served_cost else None


def _tenant(
    stats: QueueStats,
    contention: Contention,
    limits: Sequence[SharedLimit],
    demand: ChannelDemand | ChannelStats,
    now: datetime,
    *,
    holding: Sequence[WaitingChannel],
) -> Tenant:
    waits_for = wait_of(stats, contention, limits, demand, now, holding=holding)
    competes = demand.leased > 0 or (waits_for is not None and waits_for.reason not in OWN_REASONS)
    since = demand.oldest_ready_at
    return Tenant(
        demand,
        max(now - since, now - now) if since else None,
        waits_for,
        demand.leased / contention.leased if contention.leased else None,
        _entitled(demand, contention) if competes else None,
        _cost_share(demand, contention),
    )


def _taker(demand: WaitingChannel, contention: Contention) -> Taker:
    share = demand.leased / contention.leased if contention.leased else 0.0
    return Taker(demand.channel, demand.leased, share, _entitled(demand, contention))


def _entitled(channel: WaitingChannel, contention: Contention) -> float:
    return channel.weight / max(contention.rival_weight, channel.weight)
