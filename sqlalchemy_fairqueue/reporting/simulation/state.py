"""State of the simulator, in rows: of numpy record arrays if numba compiles it, else objects that Python runs it on.

All fields are 64-bit integers, times in microseconds. Messages are numbered by their ids, attempts by message and then
in their order, channels by their ids.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence

    Integers = MutableSequence[int]

NEVER = 2**63 - 1
"""The sort key of a channel or worker that is in no heap, the value of no limit, and that of no start tag."""

FIRST_TAG = -9_000_000_000_000_000_000
"""The virtual time before anything was delivered; all start tags are below zero."""


@dataclass(slots=True)
class Channel:
    """A channel's policy and state, as in fq_channel_state.

    Attributes:
        max_concurrency: Most messages leased at once; NEVER: no limit.
        rate_interval: Time between two messages on average; zero: no rate limit.
        rate_burst: Messages that may be delivered before the rate applies.
        weight: Its share.
        held: Leased messages.
        rate_at: When its rate allows the full burst again.
        sort_key: Its start tag, below zero, while it is ready, else the time at which it may be ready; NEVER: it has
            no message. In a queue that is one line: when its first message is due.
        tie_breaker: The order of channels with equal sort keys.
        heap_index: Its index in the heap of ready channels; zero: it is not in it.
        offset: Where the heap of its messages begins.
        tag: Where its next message starts in virtual time; NEVER: nowhere yet.
        tag_rest: Its costs that the tag does not have yet, below its weight; below zero it is a credit.
        is_noted: 1 if the next dequeue hears of it.
        freed: Its messages that ended since it was heard of.
        corrected: What its messages cost more than was charged, since it was heard of.
        took: What those that ended since took together, in milliseconds.
        timed: How many took that.
        mean_cost: What its messages took lately, in milliseconds; -1: unknown.
    """

    max_concurrency: int = NEVER
    rate_interval: int = 0
    rate_burst: int = 1
    weight: int = 1
    held: int = 0
    rate_at: int = 0
    sort_key: int = NEVER
    tie_breaker: int = 0
    heap_index: int = 0
    offset: int = 0
    tag: int = NEVER
    tag_rest: int = 0
    is_noted: int = 0
    freed: int = 0
    corrected: int = 0
    took: int = 0
    timed: int = 0
    mean_cost: int = -1


@dataclass(slots=True)
class Message:
    """A message and its state.

    Attributes:
        arrives_at: When it was enqueued.
        sort_key: Its order in the channel: its dequeue_at.
        tie_breaker: Its number.
        heap_index: Its index in the heap of its channel; zero: it is delivered, or has not arrived.
        channel: Its channel.
        attempt: Its present attempt, or the next.
        stop: One past its last attempt.
    """

    arrives_at: int = 0
    sort_key: int = 0
    tie_breaker: int = 0
    heap_index: int = 0
    channel: int = 0
    attempt: int = 0
    stop: int = 0


@dataclass(slots=True)
class Attempt:
    """An attempt: its recorded durations, and its simulated times.

    Attributes:
        service: Its duration.
        delay: The delay of the next attempt; zero: the message keeps its order.
        started: When it began.
        finished: When it ended.
        worker: The number of its worker.
        order: The number of the delivery, from zero.
        unhandled: 1 if it takes no worker while it is leased.
        cost: What its channel is charged, 1 in a queue that is fair by messages; in one that is fair by seconds, what
            it has been charged so far.
        took: What its settlement tells in a queue that is fair by seconds, in milliseconds; -1: nothing.
    """

    service: int = 0
    delay: int = 0
    started: int = 0
    finished: int = 0
    worker: int = 0
    order: int = 0
    unhandled: int = 0
    cost: int = 1
    took: int = -1


@dataclass(slots=True)
class Tag:
    """The place of a channel in the heap of start tags, the greatest on top.

    Attributes:
        sort_key: Its start tag, as a positive number.
        tie_breaker: The number of the channel.
        heap_index: Its index in the heap; zero: it has no start tag yet.
    """

    sort_key: int = 0
    tie_breaker: int = 0
    heap_index: int = 0


@dataclass(slots=True)
class Worker:
    """A worker, which handles one message after the other, pauses, and then dequeues more.

    Attributes:
        sort_key: When its present message is done, or its pause.
        tie_breaker: Its number.
        heap_index: Its index in the heap of busy workers; zero: it is idle.
        rest: Number of further messages that it has leased; -1: it pauses.
        pause: How long it will pause after its messages.
    """

    sort_key: int = NEVER
    tie_breaker: int = 0
    heap_index: int = 0
    rest: int = 0
    pause: int = 0


@dataclass(slots=True)
class Selection:
    """A channel that one pass of a dequeue has selected.

    Attributes:
        channel: Its number.
        quota: Messages that may be taken from it.
        taken: Messages that were taken from it.
    """

    channel: int = 0
    quota: int = 0
    taken: int = 0


class Dispatcher(NamedTuple):
    """State of the dispatcher.

    Attributes:
        channels: The channels, with their policies.
        messages: All messages of the trace.
        ready_heap: A heap of channels: its size, then the channels that may be served, the first on top.
        message_heaps: A heap of messages for each channel, one behind the other.
        selections: Array for as many channels as a batch has messages or, if fewer, all channels.
        max_concurrency: Limit of the queue; NEVER: no limit.
    """

    channels: Sequence[Channel]
    messages: Sequence[Message]
    ready_heap: Integers
    message_heaps: Integers
    selections: Sequence[Selection]
    max_concurrency: int


class CostState(NamedTuple):
    """Further state of the dispatcher of a fair queue.

    It is a tuple of its own, so that the simulator is compiled without it, and without what uses it, for one line.

    Attributes:
        waiting_heap: A heap of channels: its size, then those that will be ready at a time, the first on top.
        merge_heap: A heap of channels: those that a batch takes messages from.
        noted: The channels that the next dequeue hears of: their number, then theirs.
        greatest_tag: The greatest start tag, where none falls.
        tags: The start tags of the channels in a queue that is fair by seconds.
        tag_heap: A heap of these.
        is_timed: Whether the queue is fair by seconds.
    """

    waiting_heap: Integers
    merge_heap: Integers
    noted: Integers
    greatest_tag: Integers
    tags: Sequence[Tag]
    tag_heap: Integers
    is_timed: bool


class WorkerPool(NamedTuple):
    """The workers.

    Attributes:
        workers: All workers, and behind them an entry for each attempt that takes none.
        size: Number of workers.
        heap: A heap of the busy entries: its size, then their numbers, the first to be done on top.
        idle: The idle workers.
        spare: The unused entries behind the workers: their number, then theirs.
        assigned: Array for the leased messages: a batch a worker, then one for each further entry.
        batch: Most messages that a worker can get at once.
        requested: Messages that it requests, which may be more than there are.
        begin: When they begin to dequeue.
        pause: Microseconds of a worker's pause for each second of its messages' durations.
    """

    workers: Sequence[Worker]
    size: int
    heap: Integers
    idle: Integers
    spare: Integers
    assigned: Integers
    batch: int
    requested: int
    begin: int
    pause: int


def records(kind: type[Any], count: int) -> Any:
    """A numpy record array of rows of a kind, each with the defaults of its fields."""
    rows = np.zeros(count, dtype=[(field.name, np.int64) for field in fields(kind)])
    for field in fields(kind):
        if field.default:
            rows[field.name] = field.default
    return rows


_KINDS = {tuple(one.__slots__): one for one in (Channel, Message, Attempt, Tag, Worker, Selection)}


def objects(value: Any, kind: type[Any] | None = None) -> Any:
    """The rows of a record array as objects, by its names if no kind is given; of another array the numbers as a list.

    Any other value stays as it is.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.names is None:
        return value.tolist()
    make = kind or _KINDS[value.dtype.names]
    return [make(*row) for row in value.tolist()]


def fill(records: Any, rows: Sequence[Any]) -> None:
    for name in records.dtype.names:
        records[name] = [getattr(row, name) for row in rows]


P = ParamSpec("P")
R = TypeVar("R")

_NUMBA: Any = import_module("numba") if find_spec("numba") else None


def compilable(function: Callable[P, R]) -> Callable[P, R]:
    """A function that a compiled one may call. For all others it is unchanged."""
    if _NUMBA is None:
        return function
    marked: Callable[P, R] = import_module("numba.extending").register_jitable(function)
    return marked


@cache
def compiled(function: Callable[P, R]) -> Callable[P, R] | None:
    """A function that is compiled on its first call; None without numba.

    The compiled code is kept on disk for later processes, where that can be written to.
    """
    if _NUMBA is None:
        return None
    try:
        fast: Callable[P, R] = _NUMBA.njit(cache=True)(function)
    except RuntimeError:
        fast = _NUMBA.njit(function)
    return fast
