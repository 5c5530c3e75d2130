"""Decides why channels wait, and who has what they wait for."""

from __future__ import annotations

from dataclasses import replace
from heapq import nsmallest
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy_fairqueue.values.reports import ChannelDemand
from sqlalchemy_fairqueue.values.waits import QueueTaker, Reason, Taker, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy_fairqueue.values.reports import Competition, QueueCapacity, SharedLimit

TAKERS = 3
"""Channels that a wait names."""

_OF_OTHERS = frozenset({Reason.QUEUE_LIMIT, Reason.QUEUE_RATE, Reason.SHARED_LIMIT, Reason.SHARED_RATE, Reason.TURN})
_Channel = TypeVar("_Channel", bound=ChannelDemand)


def with_waits(
    queue: QueueCapacity,
    competition: Competition,
    limits: Sequence[SharedLimit],
    channels: Iterable[_Channel],
    now: datetime,
) -> tuple[_Channel, ...]:
    """Return channels with the reasons for which they wait; those without ready or scheduled messages have none.

    Args:
        queue: What holds the queue back.
        competition: The channels with the most messages out, and what they have together.
        limits: The shared limits that the queue draws from.
        channels: The channels, whether the competition lists them or not.
        now: The time of all of these.
    """
    # One more than a wait names: the channel itself may be among them.
    holding = nsmallest(TAKERS + 1, (one for one in competition.channels if one.leased), key=lambda one: -one.leased)

    def wait(channel: ChannelDemand) -> Wait | None:
        if channel.oldest_ready_at is None:
            return Wait(Reason.SCHEDULED) if channel.scheduled else None
        held = next(_holds(queue, limits, channel, now), None) or Wait(_turn(competition, channel))
        if held.reason not in _OF_OTHERS:
            return held
        takers = [
            Taker(one.channel, one.leased, competition.share(one) or 0.0, competition.entitled(one))
            for one in holding
            if one.channel != channel.channel
        ]
        return replace(held, takers=tuple(takers[:TAKERS]))

    return tuple(replace(channel, wait=wait(channel)) for channel in channels)


def _holds(
    queue: QueueCapacity, limits: Sequence[SharedLimit], channel: ChannelDemand, now: datetime
) -> Iterator[Wait]:
    """Yield the reasons that hold a channel back, the strongest first."""
    checks = (
        (Reason.QUEUE_PAUSED, queue.paused_at is not None, None),
        (Reason.PAUSED, channel.paused_at is not None, None),
        (Reason.NO_CONSUMER, not queue.consumers, None),
        (Reason.OWN_LIMIT, _is_full(channel.current_concurrency, channel.max_concurrency), None),
        (Reason.RATE, _is_later(channel.rate_allows_at, now), channel.rate_allows_at),
        (Reason.QUEUE_LIMIT, _is_full(queue.current_concurrency or 0, queue.max_concurrency), None),
        (Reason.QUEUE_RATE, _is_later(queue.rate_allows_at, now), queue.rate_allows_at),
    )
    yield from (Wait(reason, until) for reason, holds, until in checks if holds)
    full = (one for one in limits if _is_full(one.current_concurrency, one.max_concurrency))
    yield from (Wait(Reason.SHARED_LIMIT, None, (), one.name, _others(one, queue.queue)) for one in full)
    late = (one for one in limits if _is_later(one.rate_allows_at, now))
    yield from (Wait(Reason.SHARED_RATE, one.rate_allows_at, (), one.name, _others(one, queue.queue)) for one in late)


def _is_later(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant > now


def _is_full(current: int, most: int | None) -> bool:
    return most is not None and current >= most


def _others(limit: SharedLimit, queue: str) -> tuple[QueueTaker, ...]:
    of_queues = zip(limit.queues, limit.leased, strict=True)
    others = (QueueTaker(name, leased) for name, leased in of_queues if name != queue)
    return tuple(sorted(others, key=lambda one: -one.leased))


def _turn(competition: Competition, channel: ChannelDemand) -> Reason:
    if competition.leased <= channel.leased:
        # Consumers work for no other one.
        return Reason.CAPACITY
    used = competition.used(channel) or 0.0
    return Reason.CAPACITY if used >= competition.entitled(channel) else Reason.TURN
