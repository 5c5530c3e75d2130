"""Finds out from statistics why channels of a queue wait, and for which other channels or queues."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy_fairqueue.values.reports import ChannelDemand, QueueTaker, Reason, Taker, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy_fairqueue.values.reports import Competition, QueueCapacity, SharedLimit

TAKERS = 3
"""How many channels a wait names, at most."""

_OF_OTHERS = frozenset({Reason.QUEUE_LIMIT, Reason.QUEUE_RATE, Reason.SHARED_LIMIT, Reason.SHARED_RATE, Reason.TURN})
_Channel = TypeVar("_Channel", bound=ChannelDemand)


def with_waits(
    queue: QueueCapacity,
    competition: Competition,
    limits: Sequence[SharedLimit],
    channels: Iterable[_Channel],
    now: datetime,
) -> tuple[_Channel, ...]:
    """Return channels with the reasons for which they wait at *now*; channels without undelivered messages get none."""
    # One channel more than a wait names: the channel that waits may be among these, and is left out of its own wait.
    holding = nsmallest(TAKERS + 1, (one for one in competition.channels if one.leased), key=lambda one: -one.leased)

    def wait(channel: ChannelDemand) -> Wait | None:
        if channel.oldest_ready_at is None:
            if channel.held:
                return Wait(Reason.ORDERING_KEY, behind=channel.behind)
            return Wait(Reason.SCHEDULED) if channel.scheduled else None
        held = next(_holds(queue, limits, channel, now), None) or Wait(_turn(competition, channel))
        if held.reason not in _OF_OTHERS:
            return held
        takers = [
            Taker(one.channel, one.leased, competition.share(one) or 0.0, competition.entitled(one), one.weight)
            for one in holding
            if one.channel != channel.channel
        ]
        return replace(held, takers=tuple(takers[:TAKERS]))

    return tuple(replace(channel, wait=wait(channel)) for channel in channels)


def _holds(
    queue: QueueCapacity, limits: Sequence[SharedLimit], channel: ChannelDemand, now: datetime
) -> Iterator[Wait]:
    """Yield the reasons that hold a channel back, the strongest first. A limit among them may have free slots again."""
    allows_at, queue_allows_at = channel.rate_allows_at, queue.rate_allows_at
    is_rated = _is_later(allows_at, now, is_unheard=channel.opens_at == allows_at)
    is_queue_rated = queue_allows_at is not None and _is_later(
        queue_allows_at, now, is_unheard=queue.noted_at is not None and queue.noted_at < queue_allows_at
    )
    checks = (
        (queue.paused_at is not None, Wait(Reason.QUEUE_PAUSED)),
        (channel.paused_at is not None, Wait(Reason.PAUSED)),
        (not queue.consumers, Wait(Reason.NO_CONSUMER)),
        (_is_full(channel, channel.next_cost), _with_used(Wait(Reason.OWN_LIMIT), channel)),
        (is_rated, Wait(Reason.RATE, allows_at)),
        (_is_full(queue, queue.next_cost), _with_used(Wait(Reason.QUEUE_LIMIT), queue)),
        (is_queue_rated, Wait(Reason.QUEUE_RATE, queue_allows_at)),
    )
    yield from (wait for holds, wait in checks if holds)
    found = [(Reason.SHARED_LIMIT, one) for one in limits if _is_full(one, queue.next_cost)]
    found += [(Reason.SHARED_RATE, one) for one in limits if _is_later(one.rate_allows_at, now)]
    # If shared limits held the last dequeue back, the scarcest is the reason: it was full, or left its room to
    # another queue.
    contended = [(room, one) for one in limits if queue.queue in one.contending for room in _rooms(one, now)]
    found += [(reason, one) for (_, reason), one in sorted(contended, key=lambda pair: pair[0])]
    for reason, one in found:
        until = one.rate_allows_at if reason is Reason.SHARED_RATE else None
        wait = Wait(reason, until, limit=one.name, queues=_others(one, queue.queue))
        yield _with_used(wait, one) if reason is Reason.SHARED_LIMIT else wait


_LATE = timedelta(seconds=1)
"""How long a rate stays the reason after it allows a message, since consumers need a moment to dequeue."""


def _is_later(instant: datetime | None, now: datetime, *, is_unheard: bool = False) -> bool:
    return instant is not None and instant > (now - _LATE if is_unheard else now)


def _rooms(limit: SharedLimit, now: datetime) -> Iterator[tuple[float, Reason]]:
    if limit.max_concurrency is not None:
        yield limit.max_concurrency - limit.current_concurrency, Reason.SHARED_LIMIT
    if limit.max_cost_out is not None:
        yield limit.max_cost_out - limit.current_cost, Reason.SHARED_LIMIT
    if limit.rate is not None and limit.rate_allows_at is not None:
        yield (now - limit.rate_allows_at) / limit.rate.interval, Reason.SHARED_RATE


def _is_full(limited: ChannelDemand | QueueCapacity | SharedLimit, next_cost: int | None) -> bool:
    most, most_cost, cost = limited.max_concurrency, limited.max_cost_out, limited.current_cost or 0
    if most is not None and (limited.current_concurrency or 0) >= most:
        return True
    return most_cost is not None and 0 < cost > most_cost - (next_cost or 0)


def _with_used(wait: Wait, limited: ChannelDemand | QueueCapacity | SharedLimit) -> Wait:
    used, most = limited.current_concurrency or 0, limited.max_concurrency
    return wait if most is None or used < most else replace(wait, used=used, most=most)


def _others(limit: SharedLimit, queue: str) -> tuple[QueueTaker, ...]:
    of_queues = zip(limit.queues, limit.leased, strict=True)
    others = (QueueTaker(name, leased) for name, leased in of_queues if name != queue)
    return tuple(sorted(others, key=lambda one: -one.leased))


def _turn(competition: Competition, channel: ChannelDemand) -> Reason:
    if not competition.leased:
        return Reason.NEXT
    if competition.leased <= channel.leased:
        # Consumers work for no other channel, so no share is denied.
        return Reason.CAPACITY
    used = competition.used(channel) or 0.0
    return Reason.CAPACITY if used >= competition.entitled(channel) else Reason.TURN
