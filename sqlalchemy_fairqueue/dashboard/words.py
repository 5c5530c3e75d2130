"""Sentences about queues and tenants, as an operator says them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.dashboard.rendering import percent_text
from sqlalchemy_fairqueue.doctor.findings import Level
from sqlalchemy_fairqueue.doctor.queues import LONG, judge_queue, summary
from sqlalchemy_fairqueue.drawings import Axis, linear
from sqlalchemy_fairqueue.formats import format_duration, format_longest, plural
from sqlalchemy_fairqueue.values.reports import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy_fairqueue.dashboard.reading import Health
    from sqlalchemy_fairqueue.drawings import Drawing
    from sqlalchemy_fairqueue.figures.queues import Figures, QueueFigures
    from sqlalchemy_fairqueue.figures.shared import Point
    from sqlalchemy_fairqueue.values.reports import ChannelDemand, QueueCapacity, SharedLimit, Trend

_QUEUES = 3
"""The most queues that are named as those that draw from a shared limit."""

SAID = {
    "pause": "Paused.",
    "resume": "Resumed.",
    "policy": "The policy was changed.",
    "plan": "The plan was changed.",
    "limit": "The limit was changed.",
    "remove_plan": "The plan was removed.",
    "purge": "Purged {count}.",
    "cancel": "Cancelled.",
    "cancel_asked": "A consumer holds the message: it is told, and the message is gone unless it completes first.",
    "cancel_selected": "Cancelled: {count}. Those that consumers hold are told, and gone unless they complete first.",
    "cancel_missing": "There is nothing to cancel: the message is done, dead or unknown.",
    "move": "Moved.",
    "move_unchanged": "It is there already.",
    "move_leased": "A consumer holds the message: it stays.",
    "move_duplicate": "Another message of that tenant holds its key: it stays.",
    "retry_selected": "Due now: {count}.",
    "retry_due": "It is due now.",
    "retry_unchanged": "It was due already.",
    "retry_redriven": "It had become a dead letter, and was redriven.",
    "retry_leased": "A consumer holds the message already.",
    "retry_duplicate": "It is a dead letter, and another message holds its key: it stays.",
    "retry_missing": "There is nothing to retry: the message is done or unknown.",
    "move_missing": "There is nothing to move: the message is done, dead or unknown.",
    "cancel_group": "Cancelled: {count}. Members that consumers hold are gone unless they complete first.",
    "redrive": "Redriven: {count}.",
    "purge_dead": "Purged for good: {count}.",
    "run_schedule": "Enqueued as message #{count}.",
    "run_schedule_dropped": "Not enqueued: the tenant has as many undelivered messages as it may have.",
    "pause_schedule": "The schedule is paused.",
    "resume_schedule": "The schedule goes on.",
    "stop_worker": "Asked: within seconds it takes no more messages, and it goes when its handlers have ended.",
    "stop_worker_gone": "Asked, but no worker of that name has a lease: it has probably stopped.",
}
"""The sentence after an action, by the name of the action and how it ended."""


@dataclass(frozen=True, slots=True)
class Share:
    """A tenant's share of the service of its queue.

    Attributes:
        used: The part that the tenant uses, 0 to 1. None: the queue has no leased messages, or *unknown* says why.
        whole: Words for the whole of which *used* is a part, such as ``messages out``.
        by: The measure: "messages", "cost" or "seconds". Empty if messages are the queue's only measure.
    """

    used: float | None
    whole: str
    by: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of a trend, with words about each line."""

    title: str
    drawing: Drawing
    words: Sequence[str]


def charts_of(trend: Trend) -> list[Chart]:
    """Return the drawings of a trend; an empty list if no worker has kept a sample of the trend's time."""
    points = trend.points
    if all(point.ready is None for point in points):
        return []
    axis = Axis(points[0].at, points[-1].at + trend.step, lambda at, _: f"{at:%H:%M}")
    failed = "failed" if any(point.served is not None for point in points) else "died"
    waits = [None if one.oldest_wait is None else one.oldest_wait.total_seconds() for one in points]
    counts = {"served": [point.served for point in points], failed: [point.failed for point in points]}
    ended = {label: values for label, values in counts.items() if any(value is not None for value in values)}
    per = f" each {trend.step // timedelta(minutes=1)} minutes" if trend.step > timedelta(minutes=1) else " a minute"
    found: list[tuple[str, Mapping[str, Sequence[float | None]], bool]] = [
        ("Ready messages", {"ready": [point.ready for point in points]}, False),
        ("Oldest wait", {"oldest wait": waits}, True),
        (" and ".join(ended).capitalize() + per, ended, False),
    ]
    charts = []
    for title, series, durations in found:
        if series:
            words = [_extent(label, values, durations=durations) for label, values in series.items()]
            charts.append(Chart(title, linear(f"{title}, over time", axis, series, durations=durations), words))
    return charts


def _extent(label: str, values: Sequence[float | None], *, durations: bool) -> str:
    known = [value for value in values if value is not None]
    most, last = (
        format_duration(timedelta(seconds=value)) if durations else f"{value:,}" for value in (max(known), known[-1])
    )
    return f"{label}: {most} at most, {last} at last"


def reason_detail(channel: ChannelDemand, queue: QueueFigures) -> str:  # noqa: C901, PLR0911, PLR0912 - one case a reason
    stats, until = queue.stats, channel.wait.until if channel.wait else None
    match channel.reason:
        case Reason.QUEUE_PAUSED:
            return f"the queue is paused since {_clock(stats.paused_at)}"
        case Reason.PAUSED:
            return f"paused since {_clock(channel.paused_at)}"
        case Reason.NO_CONSUMER:
            return "no consumer has a lease: is a worker running?"
        case Reason.OWN_LIMIT:
            words = _out(channel, channel.next_cost, "it may have out")
            return _with_longest(words, channel, queue, channel.leased)
        case Reason.RATE:
            rate = f" of {channel.rate.per_time()}" if channel.rate else ""
            return f"its rate{rate} allows the next message {_in(until, queue)}"
        case Reason.QUEUE_LIMIT:
            words = _out(stats, stats.next_cost, "of the queue")
            return _with_longest(words, channel, queue, queue.contention.leased)
        case Reason.QUEUE_RATE:
            rate = f" of {stats.rate.per_time()}" if stats.rate else ""
            return f"the queue's rate{rate} allows the next message {_in(until, queue)}"
        case Reason.SHARED_LIMIT | Reason.SHARED_RATE:
            return _shared(channel, queue)
        case Reason.NEXT:
            return "nothing holds it back: it comes with the next dequeue of a consumer that knows its kind"
        case Reason.CAPACITY:
            used = f"{percent_text(queue.contention.used(channel))} of the {share_of(queue)}"
            return (
                f"it has its share, {used}, and more work: {channel.leased:,} out, {channel.ready:,} ready; add workers"
            )
        case Reason.TURN:
            out = queue.contention.leased
            return f"{plural(out, 'message')} of the queue {_is(out)} out"
        case Reason.ORDERING_KEY:
            return (
                f"{plural(channel.held, 'message')} held, the first behind message {channel.behind} of its ordering key"
            )
        case Reason.SCHEDULED:
            return f"{plural(channel.scheduled, 'message')} for later"
        case None:
            return "nothing waits"


def share_of(queue: QueueFigures) -> str:
    """Say what the tenants of a queue have shares of, such as ``messages out``."""
    return _MESSAGES_OUT if queue.contention.served_cost is None else _served(queue)


def shares_of(channel: ChannelDemand, queue: QueueFigures) -> tuple[Share, ...]:
    """Return a tenant's share by messages. If *queue* is fair by cost or seconds, put that measure's share first."""
    share, cost_share = queue.contention.share(channel), queue.contention.cost_share(channel)
    if queue.fair_by == "messages":
        return (Share(share, _MESSAGES_OUT),)
    unknown = ""
    if cost_share is None:
        unknown = "nothing with a cost ended lately" if queue.records_history else "the queue records no history"
    return Share(cost_share, _served(queue), queue.fair_by, unknown), Share(share, _MESSAGES_OUT, "messages")


_MESSAGES_OUT = "messages out"


def _served(queue: QueueFigures) -> str:
    return "cost that was served lately" if queue.fair_by == "cost" else "time of handlers lately"


def _out(limited: ChannelDemand | QueueCapacity | SharedLimit, next_cost: int | None, whose: str) -> str:
    most, used = limited.max_concurrency, limited.current_concurrency or 0
    if most is not None and used >= most:
        return f"{used:,} of {plural(most, 'message')} {whose} {_is(used)} out"
    cost = f"a cost of {limited.current_cost or 0:,} of the {limited.max_cost_out or 0:,} {whose} is out"
    return f"{cost}; the next message costs {next_cost:,}" if next_cost else cost


def _with_longest(words: str, channel: ChannelDemand, queue: QueueFigures, leased: int) -> str:
    longest = channel.wait.longest_out if channel.wait else None
    if not leased:
        return "all that was out has just ended: the next dequeue takes further messages"
    if longest is None:
        return words
    return f"{words}{': ' if leased == 1 else '; the longest is '}{format_longest(longest, queue.at, channel.channel)}"


def _in(instant: datetime | None, queue: QueueFigures) -> str:
    return f"in {format_duration(instant - queue.at)}" if instant is not None and instant > queue.at else "now"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _shared(channel: ChannelDemand, queue: QueueFigures) -> str:
    held = channel.wait
    limit = next((one for one in queue.limits if held and one.name == held.limit), None)
    if held is None or limit is None:
        return ""
    if held.reason is Reason.SHARED_LIMIT:
        words = _out(limit, queue.stats.next_cost, f"of the shared limit {limit.name}")
        if queue.name in limit.contending and limit.current_concurrency < (limit.max_concurrency or 0):
            words = f"the next message of the shared limit {limit.name} is for another queue, or comes at once"
    else:
        rate = f" of {limit.rate.per_time()}" if limit.rate else ""
        words = f"the rate{rate} of the shared limit {limit.name} allows the next message {_in(held.until, queue)}"
    others = ", ".join(f"{one.queue} has {one.leased:,} out" for one in held.queues[:_QUEUES] if one.leased)
    return f"{words}; queue {others}" if others else words


def _clock(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC" if instant else "now"


_LEVELS = {Level.OK: "good", Level.WARNING: "warn", Level.PROBLEM: "bad"}


def queue_state(queue: QueueFigures, past: Sequence[Point] = ()) -> tuple[str, str]:
    """Return the state of a queue in a few words, and the level of this state: good, warn, bad or idle."""
    if found := next(judge_queue(queue.stats, queue.at, LONG, past), None):
        return found.values["state"], _LEVELS[found.level]
    return ("flowing", "good") if queue.messages else ("idle", "idle")


def headline(figures: Figures, past: Callable[[str], Sequence[Point]], health: Health | None) -> tuple[str, str]:
    """Return a sentence about the state of all queues, and the level of this state: good, warn, bad or idle."""
    queues = list(figures.queues.values())
    found = [finding for queue in queues for finding in judge_queue(queue.stats, queue.at, LONG, past(queue.name))]
    if health and queues:
        # The checks of queues and signals are left out: judge_queue finds the same in the figures, which are newer.
        found += [one for one in health.findings if one.level and one.check not in {"queues", "signals"}]
        if health.problem and not found:
            return "The checks could not be made: see Health.", "warn"
    level = _LEVELS[max((one.level for one in found), default=Level.OK)] if queues else "idle"
    return summary(found, [queue.stats for queue in queues], figures.at), level
