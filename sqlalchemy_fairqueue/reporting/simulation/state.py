"""State of the simulator: rows of numpy record arrays for numba, or objects for plain Python.

All fields are 64-bit integers, times in microseconds. Messages and channels are numbered from zero in the order of
their ids, attempts in the order of their messages and starts. ``heap_index`` is an object's place in its heap, from 1;
zero: in none. Heaps are sorted by ``sort_key``, then ``tie_breaker``.
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
"""Later than all times. As a channel's sort key: it has no messages. As a limit or a start tag: there is none."""

FIRST_TAG = -9_000_000_000_000_000_000
"""The virtual time before anything was delivered; all start tags are below zero."""


@dataclass(slots=True)
class Channel:
    """A channel's policy and state, as in fq_channel_state.

    Attributes:
        rate_interval: The average time between two messages; zero: no rate.
        leased: Messages that consumers have leased.
        rate_at: When its rate allows the full burst again.
        sort_key: NEVER if the channel has no messages. In a fair queue: the start tag (below zero) of a ready channel,
            or the time (not below zero) when a waiting channel may be ready. With first come, first served: the first
            message's sort key or, if later, the time when the rate allows the message.
        offset: Where the heap of its messages begins in ``Dispatcher.message_heaps``.
        tag: Its start tag; NEVER: it has none yet.
        tag_rest: Cost that is not yet in the tag, less than the channel's weight; negative: credit for excess charges.
        is_noted: 1 if the next dequeue hears of the channel.
        freed: The number of attempts that ended since a dequeue last heard of the channel.
        corrected: Cost above what was charged, since a dequeue last heard of the channel.
        took: The milliseconds (``Attempt.took``) reported for the attempts that *freed* counts, summed up.
        timed: The number of attempts that *freed* counts and for which more than zero milliseconds were reported.
        mean_cost: The moving average of the milliseconds that a handler runs for a message; -1: unknown.
    """

    max_concurrency: int = NEVER
    rate_interval: int = 0
    rate_burst: int = 1
    weight: int = 1
    leased: int = 0
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
    """A message and its state. Its channel's heap has only the undelivered messages that have arrived.

    Attributes:
        arrives_at: When it was enqueued or, if the history lacks its first attempts, when it became ready.
        sort_key: Its place in the channel. It is the negated priority if the message has a priority and was not
            retried with a delay; otherwise it is the time when the message is due.
        attempt: The number of its present attempt, or of the next.
        stop: The number of its last attempt plus one.
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
        delay: The time from its end until the next attempt is ready; zero: the message keeps its place.
        order: How many messages were delivered before it in the simulation.
        unhandled: 1 if it occupies no worker, since it expired or was released.
        cost: What its channel is charged; with ``fair_by="seconds"``, the milliseconds charged before its end.
        took: The milliseconds that its settlement reports with ``fair_by="seconds"``; -1: none.
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
    """The place of a channel in a heap sorted by negated start tags, so that the greatest tag is on top."""

    sort_key: int = 0
    tie_breaker: int = 0
    heap_index: int = 0


@dataclass(slots=True)
class Worker:
    """A worker, which handles the messages of a dequeue one after another, pauses, and then dequeues again.

    Attributes:
        sort_key: The end of its present message or pause. Workers that handle a message or pause are in a heap.
        rest: How many messages it has leased besides the present one; -1: it pauses.
    """

    sort_key: int = NEVER
    tie_breaker: int = 0
    heap_index: int = 0
    rest: int = 0
    pause: int = 0


@dataclass(slots=True)
class Selection:
    """A channel that a pass of a dequeue has selected; the pass may take at most *quota* messages from the channel."""

    channel: int = 0
    quota: int = 0
    taken: int = 0


class Dispatcher(NamedTuple):
    """State of the dispatcher. A heap is an array: its size, then the numbers of its items.

    Attributes:
        message_heaps: A heap of messages for each channel, one after another.
        selections: The channels that a pass of a dequeue has selected. The next pass writes over them.
        max_concurrency: The limit of the queue; NEVER: none.
    """

    channels: Sequence[Channel]
    messages: Sequence[Message]
    ready_heap: Integers
    message_heaps: Integers
    selections: Sequence[Selection]
    max_concurrency: int


class CostState(NamedTuple):
    """Further state of the dispatcher of a fair queue; simulators of first come, first served are compiled without it.

    Attributes:
        waiting_heap: The channels that will be ready later.
        merge_heap: The channels from which the dequeue takes messages.
        noted: The channels that the next dequeue hears of: their number, then the channels.
        greatest_tag: The greatest start tag so far; not updated with ``fair_by="seconds"``.
        tags: The start tags of the channels with ``fair_by="seconds"``; *tag_heap* is a heap of them.
        is_timed: Whether the queue has ``fair_by="seconds"``.
    """

    waiting_heap: Integers
    merge_heap: Integers
    noted: Integers
    greatest_tag: Integers
    tags: Sequence[Tag]
    tag_heap: Integers
    is_timed: bool


class WorkerPool(NamedTuple):
    """The workers of a simulation, and what they have leased.

    Attributes:
        workers: First *size* workers; then further entries, which stand for attempts that occupy no worker.
        heap: The entries that have a present message or pause, sorted by its end.
        spare: The further entries that stand for no attempt now: their number, then the entries.
        assigned: The leased messages: *batch* places for each worker, then one place for each further entry.
        batch: Equal to *requested*, or to the number of all messages if they are fewer.
        requested: For how many messages a dequeue asks.
        pause: Microseconds of pause for each second of service.
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
    rows = np.zeros(count, dtype=[(field.name, np.int64) for field in fields(kind)])
    for field in fields(kind):
        if field.default:
            rows[field.name] = field.default
    return rows


_KINDS = {tuple(one.__slots__): one for one in (Channel, Message, Attempt, Tag, Worker, Selection)}


def objects(value: Any, kind: type[Any] | None = None) -> Any:
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
    """Return the function unchanged, and let compiled functions call it."""
    if _NUMBA is None:
        return function
    marked: Callable[P, R] = import_module("numba.extending").register_jitable(function)
    return marked


@cache
def compiled(function: Callable[P, R]) -> Callable[P, R] | None:
    """Return a function that is compiled on its first call, and cached on disk if possible; None without numba."""
    if _NUMBA is None:
        return None
    try:
        fast: Callable[P, R] = _NUMBA.njit(cache=True)(function)
    except RuntimeError:
        fast = _NUMBA.njit(function)
    return fast
