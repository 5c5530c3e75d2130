"""Kernel of the report: walks through the events of a queue in the order of time, and can be compiled by numba.

Times are microseconds. Sweep line: M. I. Shamos, D. Hoey, "Geometric intersection problems", 1976. Fair shares by
water-filling: D. Bertsekas, R. Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2. Compiled functions call no
function of another module: numba's cache would not notice that the other module has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlalchemy_fairqueue.reporting.simulation.state import compilable

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECOND = 1_000_000
_NEVER = 2**63 - 1
# Tolerance of rounding: a channel that got a billionth more than its fair share is no culprit.
_TOLERANCE = 1e-9


@dataclass(slots=True)
class Channel:
    """State and figures of a channel in a sweep. A queue or channel is served while one of its messages is leased.

    Attributes:
        waiting: Messages ready and not started.
        leased: Messages that consumers have leased.
        at: The time of its last event.
        served_then: How long the queue had been served until *at*.
        backlogged: How long it had waiting messages.
        starved: How long other channels, but not this one, were served while its messages waited.
        begun_at: The beginning of its latest starvation; -1: none yet.
        begun_served: How long the queue had been served until *begun_at*.
        lasted: How long others were served in its longest starvation, from *longest_begin* to *longest_end*.
        in_second: How many of its messages started in *second*, the second of its last start (counted from 1970).
        rate: The most starts in one second, whatever the rate of its policy.
        interval: The average time between two messages that its policy allows; zero: the policy has no rate.
        theoretical: The theoretical arrival time of its next message in the cell rate algorithm.
        burst: The least burst with which a rate of this *interval* would have allowed its starts; zero: no rate.
    """

    waiting: int = 0
    leased: int = 0
    at: int = 0
    served_then: int = 0
    backlogged: int = 0
    starved: int = 0
    concurrency: int = 0
    begun_at: int = -1
    begun_served: int = 0
    lasted: int = 0
    longest_begin: int = 0
    longest_end: int = 0
    second: int = -1
    in_second: int = 0
    rate: int = 0
    interval: int = 0
    theoretical: int = 0
    burst: int = 0


class Events(NamedTuple):
    """The events of a queue's attempts: ready, started and finished, each sorted by time, each with its channel.

    ``started_leased`` and ``finished_leased`` are 0 for an attempt without duration, which does not count as leased.
    """

    ready_at: Any
    ready_channel: Any
    started_at: Any
    started_channel: Any
    started_leased: Any
    finished_at: Any
    finished_channel: Any
    finished_leased: Any


@compilable
def _advance(channel: Channel, at: int, served: int) -> bool:
    starved = channel.waiting > 0 and channel.leased == 0
    if channel.waiting > 0:
        channel.backlogged += at - channel.at
        if starved:
            channel.starved += served - channel.served_then
    channel.at = at
    channel.served_then = served
    return starved


@compilable
def _count_start(channel: Channel, at: int) -> None:
    second = at // _SECOND
    if channel.second != second:
        channel.second = second
        channel.in_second = 0
    channel.in_second += 1
    channel.rate = max(channel.rate, channel.in_second)
    if channel.interval > 0:
        channel.theoretical = max(channel.theoretical, at) + channel.interval
        ahead = channel.theoretical - at
        channel.burst = max(channel.burst, (ahead + channel.interval - 1) // channel.interval)


def sweep(events: Events, channels: Sequence[Channel]) -> tuple[int, int]:
    """Go through all events by time, and fill *channels*.

    Return the time in which at least one message was leased, and the most messages that were leased at once.
    At one instant, ends come first, then messages that become ready, then starts: an end makes room for a start.
    """
    # Compiled code gets a plain tuple: numba's cache on disk must not refer to classes, which a later version may lack.
    (
        ready_at,
        ready_channel,
        started_at,
        started_channel,
        started_leased,
        finished_at,
        finished_channel,
        finished_leased,
    ) = events
    count = len(ready_at)
    now = served = leased = concurrency = ready = started = finished = 0
    while started < count or finished < count:
        next_ready = ready_at[ready] if ready < count else _NEVER
        next_started = started_at[started] if started < count else _NEVER
        next_finished = finished_at[finished] if finished < count else _NEVER
        at = min(next_ready, next_started, next_finished)
        if leased > 0:
            served += at - now
        now = at
        if next_finished == at:
            channel = channels[finished_channel[finished]]
            was_starved = _advance(channel, at, served)
            channel.leased -= finished_leased[finished]
            leased -= finished_leased[finished]
            finished += 1
            if not was_starved and channel.waiting > 0 and channel.leased == 0:
                channel.begun_at, channel.begun_served = at, served
        elif next_ready == at:
            channel = channels[ready_channel[ready]]
            was_starved = _advance(channel, at, served)
            channel.waiting += 1
            ready += 1
            if not was_starved and channel.leased == 0:
                channel.begun_at, channel.begun_served = at, served
        else:
            channel = channels[started_channel[started]]
            if _advance(channel, at, served) and channel.begun_at >= 0:
                lasted = served - channel.begun_served
                if lasted > channel.lasted or (lasted == channel.lasted and channel.begun_at > channel.longest_begin):
                    channel.lasted = lasted
                    channel.longest_begin = channel.begun_at
                    channel.longest_end = at
            channel.waiting -= 1
            channel.leased += started_leased[started]
            leased += started_leased[started]
            channel.concurrency = max(channel.concurrency, channel.leased)
            concurrency = max(concurrency, leased)
            _count_start(channel, at)
            started += 1
            if channel.waiting > 0 and channel.leased == 0:
                channel.begun_at, channel.begun_served = at, served
    return served, concurrency


class Shares(NamedTuple):
    """Fair shares of channels over all windows: arrays with one row for each channel, except for the last three.

    For shares of cost, "messages" below means their cost.

    Attributes:
        most: The most messages in a window that the policy allows; infinity: no limit.
        share: The sum of the channel's fair shares in the windows that began with a backlog of the channel.
        served: How many messages the channel received in these windows.
        denied: By how many messages the channel fell short of its share, summed over the windows in which it did.
        above: By how many messages the channel exceeded its share, summed over the windows in which it did.
        stretch: Denied messages in the latest stretch of windows with denial, from *stretch_begin* to *stretch_end*.
        worst: Denied messages in the stretch that has the most, from *worst_begin* to *worst_end*.
        victims: The row of a channel in *blame*; -1: none.
        blame: Denied messages of each victim (rows) that are ascribed to each channel (columns).
        windows: The numbers of the windows in which messages were started, counted from 1970.
        indexes: Jain's index of each of these windows; NaN: fewer than two channels competed.
    """

    weights: Any
    most: Any
    share: Any
    served: Any
    denied: Any
    above: Any
    stretch: Any
    stretch_begin: Any
    stretch_end: Any
    worst: Any
    worst_begin: Any
    worst_end: Any
    victims: Any
    blame: Any
    windows: Any
    indexes: Any


# A stretch of windows with denial ends at two windows without denial in a row, not at one.
_GAP = 2


@compilable
def _share_out(shares: Shares, members: Any, waiting: Any, served: Any, window: int) -> float:
    """Add a window's fair shares to *shares*. Return Jain's index, or NaN if fewer than two channels compete.

    *members* are the numbers of the window's channels. For each of them, *waiting* counts the messages that were
    ready when the window began, and *served* the messages that started in it.
    """
    weights = shares.weights[members]
    if served.sum() == 0:
        # If no message of the window cost anything, there is nothing to share.
        return np.nan
    uses = np.maximum(served, np.minimum(waiting, shares.most[members])).astype(np.float64)
    order = np.argsort(uses / weights, kind="mergesort")
    left, weight_left, level = float(served.sum()), float(weights.sum()), 0.0
    for number in order:
        level = max(level, left / weight_left)
        left -= uses[number]
        weight_left -= weights[number]
        if weight_left <= 0:
            break
    fair = np.minimum(uses, level * weights)
    excess = np.maximum(served - fair, 0.0)
    lack = np.maximum(fair - served, 0.0)
    excess[excess <= _TOLERANCE * fair] = 0.0
    lack[lack <= _TOLERANCE * fair] = 0.0
    total = excess.sum()
    competitors, sum_of_ratios, sum_of_squares = 0, 0.0, 0.0
    for number in range(len(members)):
        channel = members[number]
        if waiting[number] > 0:
            shares.share[channel] += fair[number]
            shares.served[channel] += served[number]
        if waiting[number] > served[number] or served[number] > fair[number] * (1 + _TOLERANCE):
            competitors += 1
            ratio = served[number] / fair[number]
            sum_of_ratios += ratio
            sum_of_squares += ratio * ratio
        shares.above[channel] += excess[number]
        if lack[number] > 0:
            _deny(shares, channel, lack[number], window)
            row = shares.victims[channel]
            if row >= 0 and total > 0:
                for other in range(len(members)):
                    shares.blame[row, members[other]] += lack[number] * excess[other] / total
    return sum_of_ratios * sum_of_ratios / (competitors * sum_of_squares) if competitors > 1 else np.nan


@compilable
def _deny(shares: Shares, channel: int, lack: float, window: int) -> None:
    shares.denied[channel] += lack
    if shares.stretch[channel] == 0 or window - shares.stretch_end[channel] > _GAP:
        shares.stretch[channel] = 0.0
        shares.stretch_begin[channel] = window
    shares.stretch[channel] += lack
    shares.stretch_end[channel] = window
    if shares.stretch[channel] > shares.worst[channel]:
        shares.worst[channel] = shares.stretch[channel]
        shares.worst_begin[channel] = shares.stretch_begin[channel]
        shares.worst_end[channel] = window


@compilable
def _join(members: Any, index: Any, size: int, channel: int) -> int:
    if index[channel] >= 0:
        return size
    index[channel] = size
    members[size] = channel
    return size + 1


def divide(events: Events, width: int, shares: Shares, ready_size: Any, started_size: Any) -> int:
    """Go through the windows of fair shares, and fill *shares*. Return in how many windows messages started.

    A message's size is 1, or for shares of cost its cost. A channel's demand in a window is the size of all messages
    that it had ready at the beginning, at most what its policy allows, but at least the size of those that started.
    *ready_size* has the sizes in the order of becoming ready, *started_size* in the order of starts.
    """
    ready_at, ready_channel, started_at, started_channel = events[0], events[1], events[2], events[3]
    shares = Shares(*shares)
    count, channels = len(started_at), len(shares.weights)
    waiting, served = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
    # The channels that have ready messages or received some in this window, and the index of each among them.
    members, index = np.zeros(channels, np.int64), np.full(channels, -1, np.int64)
    size = ready = started = found = 0
    while started < count:
        window = started_at[started] // width
        begin, end = window * width, (window + 1) * width
        while ready < count and ready_at[ready] < begin:
            channel = ready_channel[ready]
            waiting[channel] += ready_size[ready]
            size = _join(members, index, size, channel)
            ready += 1
        while started < count and started_at[started] < end:
            channel = started_channel[started]
            served[channel] += started_size[started]
            size = _join(members, index, size, channel)
            started += 1
        present = members[:size].copy()
        shares.windows[found] = window
        shares.indexes[found] = _share_out(shares, present, waiting[present], served[present], window)
        found += 1
        while ready < count and ready_at[ready] < end:
            channel = ready_channel[ready]
            waiting[channel] += ready_size[ready]
            size = _join(members, index, size, channel)
            ready += 1
        kept = 0
        for number in range(size):
            channel = members[number]
            waiting[channel] -= served[channel]
            served[channel] = 0
            if waiting[channel] > 0:
                members[kept] = channel
                index[channel] = kept
                kept += 1
            else:
                index[channel] = -1
        size = kept
    return found
