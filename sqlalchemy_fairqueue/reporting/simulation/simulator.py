"""Simulator of a queue, event by event: the rules of fq_hear and fq_dequeue on rows of integers.

A name in parentheses at the end of a docstring is the SQL function that has the same rules.
These rules of the SQL are left out: ordering keys, pauses, shared limits, the queue's own rate, quotas in cost, the
aging of priorities, and that a retry after a delay keeps the priority. Calls take no time, so no channel is locked.
Where only the other rules matter, the simulator delivers the same messages in the same order as the SQL, since it
compares the same keys; tests/reporting/simulation/test_replay_order.py shows this.

An attempt has three events: arrival, start and finish. An event costs O(log channels + log messages + log workers).
In a queue that is fair by seconds, each simulated second also costs O(workers).
Compiled functions call no function of another module: numba's cache would not notice that the other module has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.reporting.simulation.state import (
    FIRST_TAG,
    NEVER,
    CostState,
    Dispatcher,
    WorkerPool,
    compilable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.reporting.simulation.state import (
        Attempt,
        Channel,
        Integers,
        Message,
        Selection,
        Tag,
        Worker,
    )

    Members = Sequence[Channel] | Sequence[Message] | Sequence[Worker] | Sequence[Tag]

_TAG_UNIT = 2520
_MOST_COST = 1_000_000_000
# The estimate of fq_estimate, in milliseconds; the next three say how running handlers are charged, in microseconds.
_ESTIMATE = 2_000
_CHARGED_EVERY = 1_000_000
_CHARGED_AFTER = 500_000
_CHARGED_AHEAD = 2_000_000
_MILLISECOND = 1_000
_PLACES = 2**31
_MOST_DEPTH = 100_000


# A heap is a part of an array: its size, then the numbers of its items, by (sort_key, tie_breaker). One array has the
# heaps of the undelivered messages of all channels; each channel's heap has room for all of its messages.


@compilable
def _before(members: Members, one: int, other: int) -> bool:
    if members[one].sort_key != members[other].sort_key:
        return members[one].sort_key < members[other].sort_key
    return members[one].tie_breaker < members[other].tie_breaker


@compilable
def _sift_up(heap: Integers, members: Members, member: int, base: int = 0) -> None:
    at = members[member].heap_index
    while at > 1:
        other = heap[base + (at >> 1)]
        if not _before(members, member, other):
            break
        heap[base + at] = other
        members[other].heap_index = at
        at >>= 1
    heap[base + at] = member
    members[member].heap_index = at


@compilable
def _sift_down(heap: Integers, members: Members, member: int, base: int = 0) -> None:
    at = members[member].heap_index
    size = heap[base]
    while 2 * at <= size:
        below = 2 * at
        if below < size and _before(members, heap[base + below + 1], heap[base + below]):
            below += 1
        other = heap[base + below]
        if not _before(members, other, member):
            break
        heap[base + at] = other
        members[other].heap_index = at
        at = below
    heap[base + at] = member
    members[member].heap_index = at


@compilable
def _push(heap: Integers, members: Members, member: int, base: int = 0) -> None:
    heap[base] += 1
    members[member].heap_index = heap[base]
    _sift_up(heap, members, member, base)


@compilable
def _remove(heap: Integers, members: Members, member: int, base: int = 0) -> None:
    other = heap[base + heap[base]]
    heap[base] -= 1
    at, members[member].heap_index = members[member].heap_index, 0
    if other != member:
        members[other].heap_index = at
        _sift_up(heap, members, other, base)
        _sift_down(heap, members, other, base)


@compilable
def _pop(heap: Integers, members: Members, base: int = 0) -> int:
    member = heap[base + 1]
    _remove(heap, members, member, base)
    return member


@compilable
def _head(dispatcher: Dispatcher, channel: Channel) -> int:
    return dispatcher.message_heaps[channel.offset + 1] if dispatcher.message_heaps[channel.offset] > 0 else -1


@compilable
def _allowed_at(channel: Channel) -> int:
    return channel.rate_at - (channel.rate_burst - 1) * channel.rate_interval


@compilable
def _allowed_number(channel: Channel, now: int) -> int:
    ahead = channel.rate_burst * channel.rate_interval - max(channel.rate_at - now, 0)
    return ahead // channel.rate_interval


@compilable
def _draw(channel: Channel, taken: int, now: int) -> None:
    if channel.rate_interval > 0:
        channel.rate_at = max(channel.rate_at, now) + taken * channel.rate_interval


@compilable
def _ready_at(dispatcher: Dispatcher, channel: Channel) -> int:
    due = dispatcher.messages[_head(dispatcher, channel)].sort_key
    return max(due, _allowed_at(channel)) if channel.rate_interval > 0 else due


@compilable
def _update_ready(dispatcher: Dispatcher, number: int) -> None:
    channel = dispatcher.channels[number]
    if channel.heap_index > 0:
        _sift_up(dispatcher.ready_heap, dispatcher.channels, number)
        _sift_down(dispatcher.ready_heap, dispatcher.channels, number)
    elif channel.sort_key != NEVER and channel.leased < channel.max_concurrency:
        _push(dispatcher.ready_heap, dispatcher.channels, number)


@compilable
def _hear(dispatcher: Dispatcher, costs: CostState | None, message: int) -> None:
    number = dispatcher.messages[message].channel
    channel = dispatcher.channels[number]
    _push(dispatcher.message_heaps, dispatcher.messages, message, channel.offset)
    if costs is not None:
        _note(channel, costs, number)
        return
    if _head(dispatcher, channel) != message:
        return
    channel.sort_key = _ready_at(dispatcher, channel)
    channel.tie_breaker = message
    _update_ready(dispatcher, number)


@compilable
def _dequeue_in_line(dispatcher: Dispatcher, now: int, assigned: Integers, begin: int, limit: int) -> int:
    """Fill *assigned* from *begin* on with up to *limit* messages, first come, first served. Return where they end."""
    channels, ready_heap = dispatcher.channels, dispatcher.ready_heap
    end = begin
    while end < begin + limit and ready_heap[0] > 0 and channels[ready_heap[1]].sort_key <= now:
        number = _pop(ready_heap, channels)
        channel = channels[number]
        assigned[end] = _pop(dispatcher.message_heaps, dispatcher.messages, channel.offset)
        end += 1
        channel.leased += 1
        _draw(channel, 1, now)
        head = _head(dispatcher, channel)
        channel.sort_key = NEVER
        if head >= 0:
            channel.sort_key = _ready_at(dispatcher, channel)
            channel.tie_breaker = head
        _update_ready(dispatcher, number)
    return end


# The rules of a fair queue: start-time fair queueing, by start tags in virtual time. As in fq_hear, an event of a
# channel has no effect until the next dequeue hears of it. It then takes effect at the virtual time of that dequeue.


@compilable
def _note(channel: Channel, costs: CostState, number: int) -> None:
    noted = costs.noted
    if channel.is_noted == 0:
        channel.is_noted = 1
        noted[0] += 1
        noted[noted[0]] = number


@compilable
def _virtual_time(dispatcher: Dispatcher, costs: CostState) -> int:
    if dispatcher.ready_heap[0] > 0:
        return dispatcher.channels[dispatcher.ready_heap[1]].sort_key
    if costs.tag_heap[0] > 0:
        return -costs.tags[costs.tag_heap[1]].sort_key
    return costs.greatest_tag[0]


@compilable
def _set_tag(dispatcher: Dispatcher, costs: CostState, number: int, tag: int) -> None:
    dispatcher.channels[number].tag = tag
    if not costs.is_timed:
        # In a queue that is not fair by seconds, tags only rise.
        costs.greatest_tag[0] = max(costs.greatest_tag[0], tag)
        return
    costs.tags[number].sort_key = -tag
    if costs.tags[number].heap_index == 0:
        _push(costs.tag_heap, costs.tags, number)
    else:
        _sift_up(costs.tag_heap, costs.tags, number)
        _sift_down(costs.tag_heap, costs.tags, number)


@compilable
def _charge(dispatcher: Dispatcher, costs: CostState, number: int, cost: int) -> None:
    """Move a channel's start tag by a cost, less its credit for earlier excess charges (fq_tag_after, fq_tag_rest)."""
    channel = dispatcher.channels[number]
    charge = cost * _TAG_UNIT + channel.tag_rest
    forward = max(charge, 0) // channel.weight
    channel.tag_rest = charge - forward * channel.weight
    _set_tag(dispatcher, costs, number, min(channel.tag + forward, -1))


@compilable
def _correct(  # noqa: PLR0917 - numba compiles no keyword-only parameters
    dispatcher: Dispatcher,
    costs: CostState,
    number: int,
    was_ready: bool,  # noqa: FBT001
    is_ready: bool,  # noqa: FBT001
    virtual_time: int,
) -> None:
    """Set the start tag of a channel that becomes ready, or was charged too much or too little (fq_tag_heard)."""
    channel = dispatcher.channels[number]
    before = virtual_time if channel.tag == NEVER else channel.tag
    charge = channel.corrected * _TAG_UNIT + channel.tag_rest
    tag = min(max(before + charge // channel.weight, FIRST_TAG), -1)
    channel.tag_rest = charge % channel.weight
    if is_ready and was_ready:
        tag = max(tag, min(before, virtual_time))
        channel.tag_rest = charge - (tag - before) * channel.weight
    elif is_ready:
        tag = max(tag, virtual_time)
    _set_tag(dispatcher, costs, number, tag)


@compilable
def _mean_cost(mean: int, took: int, count: int) -> int:
    if count == 0:
        return mean
    average = min((2 * took + count) // (2 * count), _MOST_COST)
    if mean < 0:
        return average
    return mean + (average - mean) // 8 if average >= mean else mean - (mean - average) // 8


@compilable
def _place(dispatcher: Dispatcher, costs: CostState, number: int) -> None:
    channel = dispatcher.channels[number]
    if channel.sort_key < 0:
        _push(dispatcher.ready_heap, dispatcher.channels, number)
    elif channel.sort_key != NEVER and channel.leased < channel.max_concurrency:
        _push(costs.waiting_heap, dispatcher.channels, number)


@compilable
def _hear_costs(dispatcher: Dispatcher, costs: CostState, number: int, virtual_time: int, now: int) -> None:
    """Apply what was noted of a channel: free slots, a first message, corrected costs (fq_hear, fq_tag_heard)."""
    channel = dispatcher.channels[number]
    if channel.heap_index > 0:
        heap = dispatcher.ready_heap if channel.sort_key < 0 else costs.waiting_heap
        _remove(heap, dispatcher.channels, number)
    channel.leased -= channel.freed
    was_ready = channel.sort_key < 0
    is_ready = False
    if _head(dispatcher, channel) >= 0:
        ready_at = _ready_at(dispatcher, channel)
        channel.sort_key = min(channel.sort_key, max(ready_at, 0))
        is_ready = was_ready or (channel.leased < channel.max_concurrency and ready_at <= now)
    if channel.corrected != 0 or (is_ready and (not was_ready or channel.tag_rest < 0)):
        _correct(dispatcher, costs, number, was_ready, is_ready, virtual_time)
        if is_ready:
            channel.sort_key = channel.tag
    channel.mean_cost = _mean_cost(channel.mean_cost, channel.took, channel.timed)
    channel.is_noted = channel.freed = channel.corrected = channel.took = channel.timed = 0
    _place(dispatcher, costs, number)


@compilable
def _move_due(dispatcher: Dispatcher, costs: CostState, virtual_time: int, now: int) -> None:
    channels, waiting_heap = dispatcher.channels, costs.waiting_heap
    while waiting_heap[0] > 0 and channels[waiting_heap[1]].sort_key <= now:
        number = _pop(waiting_heap, channels)
        channel = channels[number]
        channel.sort_key = _ready_at(dispatcher, channel)
        channel.tag_rest = max(channel.tag_rest, 0)
        if channel.sort_key <= now:
            tag = virtual_time if channel.tag == NEVER else max(channel.tag, virtual_time)
            _set_tag(dispatcher, costs, number, tag)
            channel.sort_key = tag
        _place(dispatcher, costs, number)


@compilable
def _select_by_tags(dispatcher: Dispatcher, costs: CostState, width: int, now: int) -> int:
    """Move up to *width* channels from the ready order to ``costs.merge_heap``. Return how many were moved."""
    channels, merge_heap = dispatcher.channels, costs.merge_heap
    found = 0
    while found < width and dispatcher.ready_heap[0] > 0:
        number = _pop(dispatcher.ready_heap, channels)
        channel, selection = channels[number], dispatcher.selections[found]
        selection.channel, selection.taken = number, 0
        selection.quota = min(width, channel.max_concurrency - channel.leased)
        if channel.rate_interval > 0:
            selection.quota = min(selection.quota, _allowed_number(channel, now))
        found += 1
    for i in range(found):
        # Among messages with equal start tags, the first message of each channel comes before any channel's second.
        channels[dispatcher.selections[i].channel].tie_breaker = _PLACES + i
        _push(merge_heap, channels, dispatcher.selections[i].channel)
    return found


@compilable
def _take_by_tags(  # noqa: PLR0917 - numba compiles no keyword-only parameters
    dispatcher: Dispatcher,
    costs: CostState,
    attempts: Sequence[Attempt],
    assigned: Integers,
    end: int,
    limit: int,
    depth: int,
    bound: int,
    now: int,
) -> int:
    """Put at most *limit* messages into *assigned* from *end* on, and return how many (fq_cut_batch).

    A channel gives at most *depth* messages, and none while its start tag, which each message moves, is above *bound*.
    """
    channels, merge_heap = dispatcher.channels, costs.merge_heap
    count = 0
    while count < limit and merge_heap[0] > 0 and channels[merge_heap[1]].sort_key <= bound:
        number = merge_heap[1]
        channel = channels[number]
        place = channel.tie_breaker % _PLACES
        selection = dispatcher.selections[place]
        if selection.taken == depth:
            # The channel may give no more in this pass, so all messages with later start tags wait for the next pass.
            bound = channel.sort_key
            _pop(merge_heap, channels)
            continue
        message = _pop(dispatcher.message_heaps, dispatcher.messages, channel.offset)
        assigned[end + count] = message
        count += 1
        selection.taken += 1
        attempt = attempts[dispatcher.messages[message].attempt]
        if costs.is_timed:
            known = channel.mean_cost if channel.mean_cost >= 0 else _ESTIMATE
            attempt.cost = min(known, _ESTIMATE)
        _charge(dispatcher, costs, number, attempt.cost)
        head = _head(dispatcher, channel)
        if head < 0 or dispatcher.messages[head].sort_key > now or selection.taken == selection.quota:
            _pop(merge_heap, channels)
        else:
            channel.sort_key = channel.tag
            channel.tie_breaker = (selection.taken + 1) * _PLACES + place
            _sift_down(merge_heap, channels, number)
    return count


@compilable
def _update_charged(dispatcher: Dispatcher, costs: CostState, selection: Selection, now: int) -> None:
    """Count what the dequeue took from a selected channel, and put the channel where it now belongs (fq_charge)."""
    number = selection.channel
    channel = dispatcher.channels[number]
    channel.heap_index, channel.tie_breaker = 0, number
    if _head(dispatcher, channel) < 0:
        # A channel without messages keeps no credit.
        channel.tag_rest = max(channel.tag_rest, 0)
    if selection.taken > 0:
        channel.leased += selection.taken
        _draw(channel, selection.taken, now)
        channel.sort_key = channel.tag
        if _head(dispatcher, channel) < 0:
            channel.sort_key = NEVER
        else:
            ready_at = max(now, _ready_at(dispatcher, channel))
            if ready_at > now or channel.leased >= channel.max_concurrency:
                channel.sort_key = ready_at
    _place(dispatcher, costs, number)


@compilable
def _dequeue(  # noqa: PLR0917 - numba compiles no keyword-only parameters
    dispatcher: Dispatcher,
    costs: CostState,
    attempts: Sequence[Attempt],
    now: int,
    assigned: Integers,
    begin: int,
    limit: int,
) -> int:
    """Hear of noted channels; fill *assigned* from *begin* on with up to *limit* messages. Return where they end."""
    virtual_time, noted = _virtual_time(dispatcher, costs) + 1, costs.noted
    for i in range(1, noted[0] + 1):
        _hear_costs(dispatcher, costs, noted[i], virtual_time, now)
    noted[0] = 0
    _move_due(dispatcher, costs, virtual_time, now)
    end = begin
    passes = 0
    while end < begin + limit and dispatcher.ready_heap[0] > 0:
        left = begin + limit - end
        found = _select_by_tags(dispatcher, costs, left, now)
        depth, bound = 2 * left // found + 2, NEVER
        if found == left:
            # Channels that were not selected may come after the last selected one: take nothing beyond its tag.
            depth, bound = 1, dispatcher.channels[dispatcher.selections[found - 1].channel].sort_key
        end += _take_by_tags(
            dispatcher, costs, attempts, assigned, end, left, min(depth << passes, _MOST_DEPTH), bound, now
        )
        passes = min(passes + 1, 16)
        costs.merge_heap[0] = 0
        for i in range(found):
            _update_charged(dispatcher, costs, dispatcher.selections[i], now)
    return end


@compilable
def _finish(dispatcher: Dispatcher, costs: CostState | None, attempts: Sequence[Attempt], done: int, now: int) -> None:
    """End the present attempt of message *done*, and free its slot. Put the message back if it has another attempt."""
    message = dispatcher.messages[done]
    attempt = attempts[message.attempt]
    attempt.finished = now
    channel = dispatcher.channels[message.channel]
    if costs is not None:
        channel.freed += 1
        if attempt.took >= 0:
            channel.corrected += attempt.took - attempt.cost
            channel.took += attempt.took
            channel.timed += attempt.took > 0
        if attempt.took >= 0 or min(channel.max_concurrency, dispatcher.max_concurrency) != NEVER:
            _note(channel, costs, message.channel)
    else:
        channel.leased -= 1
        if channel.heap_index == 0:
            _update_ready(dispatcher, message.channel)
    if message.attempt + 1 < message.stop:
        message.attempt += 1
        if attempt.delay > 0:
            message.sort_key = now + attempt.delay
        _hear(dispatcher, costs, done)


@compilable
def _charge_running(
    dispatcher: Dispatcher, costs: CostState, pool: WorkerPool, attempts: Sequence[Attempt], now: int
) -> None:
    """Charge channels for handlers that have run for half a second or longer (fq_correct_costs)."""
    for i in range(1, pool.heap[0] + 1):
        number = pool.heap[i]
        worker = pool.workers[number]
        if number >= pool.size or worker.rest < 0:
            continue
        message = dispatcher.messages[pool.assigned[_slot(pool, number) + worker.rest]]
        attempt, channel = attempts[message.attempt], dispatcher.channels[message.channel]
        took = now - (worker.sort_key - attempt.service)
        cost = min((took + _CHARGED_AHEAD + _MILLISECOND - 1) // _MILLISECOND, _MOST_COST)
        if took >= _CHARGED_AFTER and cost > attempt.cost:
            channel.corrected += cost - attempt.cost
            attempt.cost = cost
            _note(channel, costs, message.channel)


@compilable
def _begin(dispatcher: Dispatcher, pool: WorkerPool, attempts: Sequence[Attempt], number: int, count: int) -> None:
    assigned = pool.assigned
    first, last = number * pool.batch, number * pool.batch + count - 1
    # Messages are handled from the last place to the first, so they are reversed here. The place of a message within
    # the batch is then the number of messages left after it.
    for i in range(count // 2):
        assigned[first + i], assigned[last - i] = assigned[last - i], assigned[first + i]
    attempt = attempts[dispatcher.messages[assigned[last]].attempt]
    worker = pool.workers[number]
    worker.rest = count - 1
    worker.sort_key = attempt.started + attempt.service
    worker.pause = 0
    if pool.pause > 0:
        for i in range(first, last + 1):
            worker.pause += attempts[dispatcher.messages[assigned[i]].attempt].service * pool.pause // 1_000_000
    _push(pool.heap, pool.workers, number)


@compilable
def _slot(pool: WorkerPool, number: int) -> int:
    if number < pool.size:
        return number * pool.batch
    return pool.size * pool.batch + number - pool.size


@compilable
def _lease(  # noqa: PLR0917 - numba compiles no keyword-only parameters
    dispatcher: Dispatcher, pool: WorkerPool, attempts: Sequence[Attempt], number: int, count: int, delivered: int
) -> int:
    """Record that worker *number* dequeued *count* messages; all workers together dequeued *delivered* before.

    Return how many of the *count* messages the worker handles: all except those whose attempt expired or was released.
    """
    assigned, spare, now = pool.assigned, pool.spare, pool.workers[number].sort_key
    at = number * pool.batch
    handled = 0
    for i in range(at, at + count):
        message = assigned[i]
        attempt = attempts[dispatcher.messages[message].attempt]
        attempt.started = now
        attempt.worker = number
        attempt.order = delivered
        delivered += 1
        if attempt.unhandled > 0:
            other = spare[spare[0]]
            spare[0] -= 1
            assigned[_slot(pool, other)] = message
            pool.workers[other].rest = 0
            pool.workers[other].sort_key = now + attempt.service
            _push(pool.heap, pool.workers, other)
        else:
            assigned[at + handled] = message
            handled += 1
    return handled


@compilable
def _proceed(
    dispatcher: Dispatcher, costs: CostState | None, pool: WorkerPool, attempts: Sequence[Attempt], now: int
) -> tuple[int, int]:
    """Go on to the next end of an attempt, or of a worker's pause between two dequeues.

    Return 1 for an attempt, else 0; and the number of the worker that is idle now, or -1 if none is.
    """
    number = pool.heap[1]
    worker = pool.workers[number]
    ended = 0
    if worker.rest >= 0:
        _finish(dispatcher, costs, attempts, pool.assigned[_slot(pool, number) + worker.rest], now)
        ended = 1
    if worker.rest > 0:
        worker.rest -= 1
        following = dispatcher.messages[pool.assigned[_slot(pool, number) + worker.rest]].attempt
        worker.sort_key = now + attempts[following].service
        _sift_down(pool.heap, pool.workers, number)
        return ended, -1
    if worker.pause > 0:
        worker.rest = -1
        worker.sort_key = now + worker.pause
        worker.pause = 0
        _sift_down(pool.heap, pool.workers, number)
        return ended, -1
    _pop(pool.heap, pool.workers)
    if number < pool.size:
        return ended, number
    pool.spare[0] += 1
    pool.spare[pool.spare[0]] = number
    return ended, -1


@compilable
def _dequeues_at(dispatcher: Dispatcher, costs: CostState | None, pool: WorkerPool, leased: int, now: int) -> int:
    """Return when an idle worker dequeues if nothing happens before; NEVER: nothing to do, or the limit is full."""
    if costs is not None and costs.noted[0] > 0:
        return max(pool.begin, now)
    if leased >= dispatcher.max_concurrency:
        return NEVER
    if dispatcher.ready_heap[0] > 0:
        # In a fair queue, the sort key of a ready channel is a start tag. It is below zero, so it is never the greatest
        # of the three. In FIFO the sort key is a time, or below zero if the message has a priority.
        return max(pool.begin, now, dispatcher.channels[dispatcher.ready_heap[1]].sort_key)
    if costs is not None and costs.waiting_heap[0] > 0:
        return max(pool.begin, now, dispatcher.channels[costs.waiting_heap[1]].sort_key)
    return NEVER


@compilable
def _simulate(
    dispatcher: Dispatcher,
    costs: CostState | None,
    pool: WorkerPool,
    arrivals: Integers,
    attempts: Sequence[Attempt],
) -> None:
    messages = dispatcher.messages
    heap, workers, idle = pool.heap, pool.workers, pool.idle
    arrived = 0
    delivered = 0
    leased = 0
    free = pool.size
    now = -NEVER
    charged_next = pool.begin + _CHARGED_EVERY
    while True:
        finishes_at = workers[heap[1]].sort_key if heap[0] > 0 else NEVER
        arrives_at = messages[arrivals[arrived]].arrives_at if arrived < len(arrivals) else NEVER
        dequeues_at = _dequeues_at(dispatcher, costs, pool, leased, now) if free > 0 else NEVER
        charges_at = NEVER
        if costs is not None and costs.is_timed and heap[0] > 0:
            charged_next += max(0, (now - charged_next + _CHARGED_EVERY - 1) // _CHARGED_EVERY) * _CHARGED_EVERY
            charges_at = charged_next
        now = min(finishes_at, arrives_at, dequeues_at, charges_at)
        if now == NEVER:
            break
        if finishes_at == now:
            ended, number = _proceed(dispatcher, costs, pool, attempts, now)
            leased -= ended
            if number >= 0:
                idle[free] = number
                free += 1
        elif costs is not None and charges_at == now:
            _charge_running(dispatcher, costs, pool, attempts, now)
            charged_next += _CHARGED_EVERY
        elif arrives_at == now:
            _hear(dispatcher, costs, arrivals[arrived])
            arrived += 1
        else:
            number = idle[free - 1]
            at = number * pool.batch
            room = min(pool.requested, dispatcher.max_concurrency - leased)
            if costs is not None:
                count = _dequeue(dispatcher, costs, attempts, now, pool.assigned, at, room) - at
            else:
                count = _dequeue_in_line(dispatcher, now, pool.assigned, at, room) - at
            workers[number].sort_key = now
            handled = _lease(dispatcher, pool, attempts, number, count, delivered)
            delivered += count
            leased += count
            if handled > 0:
                _begin(dispatcher, pool, attempts, number, handled)
                free -= 1


def simulate(
    dispatcher: Dispatcher,
    costs: CostState | None,
    pool: WorkerPool,
    arrivals: Integers,
    attempts: Sequence[Attempt],
) -> None:
    """Simulate a trace: fill in the times of each attempt. *costs* is None for first come, first served.

    At one instant, attempts finish first, then running ones are charged, messages arrive, and workers dequeue.
    """
    # Compiled code gets plain tuples: numba's cache on disk must not refer to classes, which a later version may lack.
    state, workers = Dispatcher(*dispatcher), WorkerPool(*pool)
    if costs is None:
        _simulate(state, None, workers, arrivals, attempts)
    else:
        _simulate(state, CostState(*costs), workers, arrivals, attempts)
