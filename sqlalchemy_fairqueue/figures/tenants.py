"""Tenants: why a channel waits, which share of the consumers it has and is entitled to, and who has the rest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.figures.times import age

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy_fairqueue.values import ChannelDemand, Contention, QueueStats

_TAKERS = 3


class Reason(StrEnum):
    """The reasons of a wait. The first one that holds is given: lifting the others would change nothing."""

    QUEUE_PAUSED = "queue paused"
    PAUSED = "paused"
    NO_CONSUMER = "no consumer"
    OWN_LIMIT = "own limit"
    RATE = "rate"
    QUEUE_LIMIT = "queue limit"
    QUEUE_RATE = "queue rate"
    CAPACITY = "capacity"
    """It has the share of the consumers that it is entitled to, and more work than that serves."""
    TURN = "others' turn"
    SCHEDULED = "scheduled"


OWN_REASONS = frozenset({Reason.QUEUE_PAUSED, Reason.PAUSED, Reason.OWN_LIMIT, Reason.RATE, Reason.SCHEDULED})
"""Reasons of a channel that does not compete with others for consumers."""


@dataclass(frozen=True, slots=True)
class Taker:
    """A channel that takes capacity.

    Attributes:
        channel: Its name.
        leased: Its messages that consumers hold.
        share: These as a part of all messages that consumers of the queue hold, 0 to 1.
        entitled: The part that its weight entitles it to, 0 to 1.
    """

    channel: str
    leased: int
    share: float
    entitled: float


@dataclass(frozen=True, slots=True)
class Tenant:
    """A channel, and why it waits.

    Attributes:
        demand: Its counts and limits.
        wait: How long its oldest ready message waits. None: nothing is ready.
        reason: Why it waits. None: it has neither ready nor scheduled messages.
        until: When the reason ends at the latest, by its rate or its pause. None: that is not known.
        share: Its messages that consumers hold as a part of all, 0 to 1. None: consumers hold none.
        entitled: The part that its weight entitles it to beside the channels that compete now, 0 to 1. None: something
            of its own holds it back.
        takers: The channels that take the capacity it waits for, the most first. Empty: the reason is its own.
    """

    demand: ChannelDemand
    wait: timedelta | None
    reason: Reason | None
    until: datetime | None
    share: float | None
    entitled: float | None
    takers: tuple[Taker, ...]

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self.demand.channel


def tenants_of(stats: QueueStats, contention: Contention, now: datetime) -> tuple[Tenant, ...]:
    """The channels of a contention with the reasons of their waits, the longest wait first.

    Args:
        stats: The counts of the queue, of the same snapshot.
        contention: The channels.
        now: The time of the snapshot.
    """
    holding = sorted((one for one in contention.channels if one.leased), key=lambda one: -one.leased)
    takers = [_taker(one, contention) for one in holding]
    return tuple(_tenant(stats, contention, takers, demand, now) for demand in contention.channels)


def _tenant(
    stats: QueueStats, contention: Contention, takers: Sequence[Taker], demand: ChannelDemand, now: datetime
) -> Tenant:
    reason = _reason(stats, demand, now)
    if (
        reason is Reason.TURN
        and contention.leased
        and demand.leased / contention.leased >= _entitled(demand, contention)
    ):
        reason = Reason.CAPACITY
    competes = demand.leased > 0 or (reason is not None and reason not in OWN_REASONS)
    blocked_by_others = reason in {Reason.QUEUE_LIMIT, Reason.QUEUE_RATE, Reason.TURN}
    return Tenant(
        demand,
        age(demand.oldest_ready_at, now),
        reason,
        {Reason.RATE: demand.rate_allows_at, Reason.QUEUE_RATE: stats.rate_allows_at}.get(reason) if reason else None,
        demand.leased / contention.leased if contention.leased else None,
        _entitled(demand, contention) if competes else None,
        tuple(one for one in takers if one.channel != demand.channel)[:_TAKERS] if blocked_by_others else (),
    )


def _reason(stats: QueueStats, demand: ChannelDemand, now: datetime) -> Reason | None:
    if demand.oldest_ready_at is None:
        return Reason.SCHEDULED if demand.scheduled else None
    full = stats.max_concurrency is not None and (stats.current_concurrency or 0) >= stats.max_concurrency
    at_limit = demand.max_concurrency is not None and demand.current_concurrency >= demand.max_concurrency
    holds = (
        (Reason.QUEUE_PAUSED, stats.paused_at is not None),
        (Reason.PAUSED, demand.paused_at is not None),
        (Reason.NO_CONSUMER, not stats.consumers),
        (Reason.OWN_LIMIT, at_limit),
        (Reason.RATE, demand.rate_allows_at is not None and demand.rate_allows_at > now),
        (Reason.QUEUE_LIMIT, full),
        (Reason.QUEUE_RATE, stats.rate_allows_at is not None and stats.rate_allows_at > now),
    )
    return next((reason for reason, it_holds in holds if it_holds), Reason.TURN)


def _taker(demand: ChannelDemand, contention: Contention) -> Taker:
    share = demand.leased / contention.leased if contention.leased else 0.0
    return Taker(demand.channel, demand.leased, share, _entitled(demand, contention))


def _entitled(demand: ChannelDemand, contention: Contention) -> float:
    return demand.weight / max(contention.rival_weight, demand.weight)
