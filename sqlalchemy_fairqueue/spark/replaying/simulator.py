"""What dequeue does with a trace, event by event: the rules of fq_hear and fq_dequeue on rows of integers.

Every comparison is the SQL's own, so that both deliver the same messages in the same order, as
tests/spark/test_replay_order.py shows. What is left out: calls take no time, hearing never lags, nobody locks anything.
An event is an arrival, a start or a finish: an attempt has one of each. It costs O(log channels + log workers).

All that is compiled is in this module: numba keeps what it compiled until the file of that very function changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.replaying.compiling import compilable
from sqlalchemy_fairqueue.spark.replaying.rows import NEVER, Crew, Dispatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.spark.replaying.rows import Attempt, Channel, Integers, Message, Pick, Worker

    Members = Sequence[Channel] | Sequence[Worker]


# A heap of members by (place, tie): first its size, then the numbers of members, the first on top.


@compilable
def _before(members: Members, one: int, other: int) -> bool:
    if members[one].place != members[other].place:
        return members[one].place < members[other].place
    return members[one].tie < members[other].tie


@compilable
def _rise(heap: Integers, members: Members, member: int) -> None:
    at = members[member].spot
    while at > 1:
        other = heap[at >> 1]
        if not _before(members, member, other):
            break
        heap[at] = other
        members[other].spot = at
        at >>= 1
    heap[at] = member
    members[member].spot = at


@compilable
def _sink(heap: Integers, members: Members, member: int) -> None:
    at = members[member].spot
    size = heap[0]
    while 2 * at <= size:
        below = 2 * at
        if below < size and _before(members, heap[below + 1], heap[below]):
            below += 1
        other = heap[below]
        if not _before(members, other, member):
            break
        heap[at] = other
        members[other].spot = at
        at = below
    heap[at] = member
    members[member].spot = at


@compilable
def _enter(heap: Integers, members: Members, member: int) -> None:
    heap[0] += 1
    members[member].spot = heap[0]
    _rise(heap, members, member)


@compilable
def _leave(heap: Integers, members: Members) -> int:
    """Take out who is on top."""
    member = heap[1]
    other = heap[heap[0]]
    heap[0] -= 1
    members[member].spot = 0
    if other != member:
        members[other].spot = 1
        _sink(heap, members, other)
    return member


# The messages of a channel that nobody has, by (due, number). Those that come in order, as nearly all do, form a run;
# the others a heap beside it. Each channel has room for all of its messages in both.


@compilable
def _earlier(messages: Sequence[Message], one: int, other: int) -> bool:
    if messages[one].due != messages[other].due:
        return messages[one].due < messages[other].due
    return one < other


@compilable
def _head(desk: Dispatcher, channel: Channel) -> int:
    """The first message of a channel, or -1."""
    head = desk.run[channel.begin] if channel.begin < channel.end else -1
    if channel.strays > 0:
        other = desk.strays[channel.offset]
        if head < 0 or _earlier(desk.messages, other, head):
            head = other
    return head


@compilable
def _add(desk: Dispatcher, channel: Channel, message: int) -> None:
    if channel.begin == channel.end:
        channel.begin = channel.end = channel.offset
    if channel.begin == channel.end or (
        channel.end < channel.stop and _earlier(desk.messages, desk.run[channel.end - 1], message)
    ):
        desk.run[channel.end] = message
        channel.end += 1
        return
    strays, offset = desk.strays, channel.offset
    at = channel.strays
    channel.strays += 1
    while at > 0:
        above = (at - 1) >> 1
        if not _earlier(desk.messages, message, strays[offset + above]):
            break
        strays[offset + at] = strays[offset + above]
        at = above
    strays[offset + at] = message


@compilable
def _take(desk: Dispatcher, channel: Channel, head: int) -> None:
    """Take a channel's first message, which is *head*."""
    if channel.begin < channel.end and desk.run[channel.begin] == head:
        channel.begin += 1
        return
    channel.strays -= 1
    messages, strays, offset, size = desk.messages, desk.strays, channel.offset, channel.strays
    message = strays[offset + size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _earlier(messages, strays[offset + below + 1], strays[offset + below]):
            below += 1
        if not _earlier(messages, strays[offset + below], message):
            break
        strays[offset + at] = strays[offset + below]
        at = below
    strays[offset + at] = message


# What fq_hear and fq_dequeue do.


@compilable
def _allowed_at(channel: Channel) -> int:
    """From when on the channel's rate allows a message."""
    return channel.release_at - (channel.release_burst - 1) * channel.release_interval


@compilable
def _stand(desk: Dispatcher, number: int) -> None:
    """Be in line, where the channel's place is, while its limit allows."""
    channel = desk.channels[number]
    if channel.spot > 0:
        _rise(desk.line, desk.channels, number)
        _sink(desk.line, desk.channels, number)
    elif channel.place != NEVER and channel.held < channel.max_concurrency:
        _enter(desk.line, desk.channels, number)


@compilable
def _hear(desk: Dispatcher, message: int) -> None:
    """A message is ready, or will be."""
    number = desk.messages[message].channel
    channel = desk.channels[number]
    _add(desk, channel, message)
    if _head(desk, channel) != message:
        return
    place = desk.messages[message].due
    if desk.fair:
        place = max(place, channel.last)
    if channel.release_interval > 0:
        place = max(place, _allowed_at(channel))
    if desk.fair:
        channel.place = min(channel.place, place)
    else:
        channel.place = place
        channel.tie = message
    _stand(desk, number)


@compilable
def _pick(desk: Dispatcher, now: int, until: int, width: int, set_aside: int) -> tuple[int, int]:
    """Take up to *width* channels out of the line, and those that have to stand aside, of which there are some."""
    found = 0
    while found < width and desk.line[0] > 0 and desk.channels[desk.line[1]].place <= until:
        number = _leave(desk.line, desk.channels)
        channel = desk.channels[number]
        # What became due after the call began waits for the next one.
        if desk.messages[_head(desk, channel)].due > now or _allowed_at(channel) > now:
            desk.aside[set_aside] = number
            set_aside += 1
        else:
            desk.picks[found].channel = number
            found += 1
    return found, set_aside


@compilable
def _share(desk: Dispatcher, found: int, left: int, width: int, now: int) -> None:
    """Say how many each of the picked may give: as many whole turns as all of them fit in, within limit and rate.

    One turn while others may stand behind them, who were not looked at.
    """
    weights = 0
    for i in range(found):
        weights += desk.channels[desk.picks[i].channel].weight
    turns = 1 if found == width and width < left else max(1, left // weights)
    room = left
    for i in range(found):
        pick = desk.picks[i]
        channel = desk.channels[pick.channel]
        pick.got = 0
        pick.turn_left = channel.credit if channel.credit > 0 else channel.weight
        quota = pick.turn_left + (turns - 1) * channel.weight if desk.fair else 1
        quota = min(quota, room, channel.max_concurrency - channel.held)
        if channel.release_interval > 0:
            ahead = (channel.release_burst - 1) * channel.release_interval
            quota = min(quota, (now + ahead - max(channel.release_at, now)) // channel.release_interval + 1)
        pick.quota = quota
        room -= quota


@compilable
def _deal(desk: Dispatcher, found: int, now: int, hand: Integers, end: int) -> int:
    """Take what the picked may give, turn by turn, to the end of *hand*. Returns where that is then."""
    turn = 0
    more = True
    while more:
        more = False
        for i in range(found):
            pick = desk.picks[i]
            channel = desk.channels[pick.channel]
            most = min(pick.quota, pick.turn_left + turn * channel.weight)
            while pick.got < most:
                head = _head(desk, channel)
                if head < 0 or desk.messages[head].due > now:
                    pick.quota = pick.got
                    break
                _take(desk, channel, head)
                hand[end] = head
                end += 1
                pick.got += 1
            more = more or pick.got < pick.quota
        turn += 1
    return end


@compilable
def _served(desk: Dispatcher, pick: Pick, place: int, now: int) -> None:
    """A channel gave messages: fq_credit_after, fq_place_after. *place*: where it stands if its turn is over."""
    channel = desk.channels[pick.channel]
    channel.held += pick.got
    if channel.release_interval > 0:
        channel.release_at = max(channel.release_at, now) + pick.got * channel.release_interval
    channel.last = place
    head = _head(desk, channel)
    if head < 0:
        channel.credit, channel.place = 0, NEVER
        return
    due = desk.messages[head].due
    if due > now:
        channel.credit = 0
        place = due
    elif pick.got < pick.turn_left:
        channel.credit = pick.turn_left - pick.got
        place = channel.place
    else:
        channel.credit = (channel.weight - (pick.got - pick.turn_left) % channel.weight) % channel.weight
    if not desk.fair:
        place = due
        channel.tie = head
    if channel.release_interval > 0:
        place = max(place, _allowed_at(channel))
    channel.place = place


@compilable
def _dequeue(desk: Dispatcher, now: int, hand: Integers, begin: int, limit: int) -> int:
    """Fill *hand* from *begin* on with up to *limit* messages. Returns where they end."""
    place = now
    end = begin
    set_aside = 0
    # No more channels are looked at than the limit is turns, if all have the weight of the first in line.
    width = (limit - 1) // (desk.ahead[1] if desk.ahead[0] <= now else 1) + 1
    while end < begin + limit:
        left = begin + limit - end
        if not desk.fair:
            width = 1
        found, set_aside = _pick(desk, now, place, width, set_aside)
        if found == 0:
            break
        _share(desk, found, left, width, now)
        end = _deal(desk, found, now, hand, end)
        got = left - (begin + limit - end)
        left -= got
        width = 2 * width if got == 0 else min(left, (left * found + got - 1) // got)
        for i in range(found):
            if desk.fair:
                place += 1
            if desk.picks[i].got > 0:
                _served(desk, desk.picks[i], place, now)
            _stand(desk, desk.picks[i].channel)
    for i in range(set_aside):
        _stand(desk, desk.aside[i])
    first = desk.line[1]
    desk.ahead[0] = desk.channels[first].place if desk.line[0] > 0 else NEVER
    desk.ahead[1] = desk.channels[first].weight
    return end


@compilable
def _finish(desk: Dispatcher, attempts: Sequence[Attempt], done: int, now: int) -> None:
    """A message's attempt has ended: free its slot, and hear of the next one if there was one."""
    message = desk.messages[done]
    attempt = attempts[message.attempt]
    attempt.finished = now
    channel = desk.channels[message.channel]
    channel.held -= 1
    if channel.spot == 0:
        _stand(desk, message.channel)
    if message.attempt + 1 < message.stop:
        message.attempt += 1
        if attempt.delay > 0:
            message.due = now + attempt.delay
        _hear(desk, done)


@compilable
def _begin(desk: Dispatcher, crew: Crew, attempts: Sequence[Attempt], number: int, count: int) -> None:
    """A worker begins with the first of what it has just got."""
    hand = crew.hand
    first, last = number * crew.batch, number * crew.batch + count - 1
    # Worked off from the end, so that a count tells what is left.
    for i in range(count // 2):
        hand[first + i], hand[last - i] = hand[last - i], hand[first + i]
    attempt = attempts[desk.messages[hand[last]].attempt]
    worker = crew.workers[number]
    worker.rest = count - 1
    worker.place = attempt.started + attempt.service
    _enter(crew.heap, crew.workers, number)


def simulate(desk: Dispatcher, crew: Crew, arrivals: Integers, attempts: Sequence[Attempt]) -> None:
    """Work off a trace: fill in what becomes of each attempt.

    At one instant, attempts finish first, then messages arrive, and then workers ask.

    Args:
        desk: What dequeue works on, with all messages of the trace.
        crew: The workers, all idle.
        arrivals: The messages in the order in which they were enqueued.
        attempts: Of the trace.
    """
    # Compiled, it gets plain tuples: what numba keeps on disk must not name classes, which a later version may lack.
    desk, crew = Dispatcher(*desk), Crew(*crew)
    line, channels, messages = desk.line, desk.channels, desk.messages
    heap, workers, idle, hand, batch, asked = crew.heap, crew.workers, crew.idle, crew.hand, crew.batch, crew.asked
    arrived = 0
    delivered = 0
    held = 0
    free = len(workers)
    now = -NEVER
    while True:
        finishes_at = workers[heap[1]].place if heap[0] > 0 else NEVER
        arrives_at = messages[arrivals[arrived]].arrives_at if arrived < len(arrivals) else NEVER
        asks_at = NEVER
        if free > 0 and line[0] > 0 and held < desk.max_concurrency:
            asks_at = max(crew.begin, now, channels[line[1]].place)
        now = min(finishes_at, arrives_at, asks_at)
        if now == NEVER:
            break
        if finishes_at == now:
            number = heap[1]
            worker = workers[number]
            _finish(desk, attempts, hand[number * batch + worker.rest], now)
            held -= 1
            if worker.rest > 0:
                worker.rest -= 1
                following = messages[hand[number * batch + worker.rest]].attempt
                worker.place = now + attempts[following].service
                _sink(heap, workers, number)
            else:
                _leave(heap, workers)
                idle[free] = number
                free += 1
        elif arrives_at == now:
            _hear(desk, arrivals[arrived])
            arrived += 1
        else:
            number = idle[free - 1]
            at = number * batch
            count = _dequeue(desk, now, hand, at, min(asked, desk.max_concurrency - held)) - at
            for i in range(at, at + count):
                attempt = attempts[messages[hand[i]].attempt]
                attempt.started = now
                attempt.worker = number
                attempt.order = delivered
                delivered += 1
            _begin(desk, crew, attempts, number, count)
            held += count
            free -= 1
