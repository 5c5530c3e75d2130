"""The rows that the simulator works on: of numpy record arrays when it is compiled, objects when it is not.

All are 64-bit integers, times in microseconds. Messages are numbered in the order of their ids, attempts by message and
then as they were made, channels and workers as they come.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    Integers = MutableSequence[int]

NEVER = 2**63 - 1
"""The place of who does not stand in line, and the limit of who has none."""


@dataclass(slots=True)
class Channel:
    """A channel's policy and state, as in fq_channel_state.

    Attributes:
        max_concurrency: Most messages in consumers' hands; NEVER: no limit.
        release_interval: Time between two messages on average; zero: no rate limit.
        release_burst: Messages that may come in a row.
        weight: Messages a turn.
        held: Messages in consumers' hands.
        last: The place that its last service gave it.
        release_at: When its rate has caught up.
        credit: What is left of its turn.
        place: Its place in line; NEVER: it has no message.
        tie: What decides between equal places.
        spot: Where in the line's heap it is; zero: not there.
        begin: Where the run of its messages that came in order begins.
        end: Where that run ends.
        strays: How many of its messages came out of order.
        offset: Where its part of the room for messages begins.
        stop: Where that part ends.
    """

    max_concurrency: int = NEVER
    release_interval: int = 0
    release_burst: int = 1
    weight: int = 1
    held: int = 0
    last: int = 0
    release_at: int = 0
    credit: int = 0
    place: int = NEVER
    tie: int = 0
    spot: int = 0
    begin: int = 0
    end: int = 0
    strays: int = 0
    offset: int = 0
    stop: int = 0


@dataclass(slots=True)
class Message:
    """A message and where it stands.

    Attributes:
        arrives_at: When it was enqueued.
        due: Where it stands in its channel: its dequeue_at.
        channel: Its channel.
        attempt: Its attempt that is running, or the next.
        stop: One past its last attempt.
    """

    arrives_at: int = 0
    due: int = 0
    channel: int = 0
    attempt: int = 0
    stop: int = 0


@dataclass(slots=True)
class Attempt:
    """An attempt: what is known of it, and what becomes of it.

    Attributes:
        service: How long it is in a consumer's hands.
        delay: How long after it the next is due; zero: the message stands where it stood.
        started: When it was handed out.
        finished: When it ended.
        worker: Who had it.
        order: The how many-th delivery it was, from zero.
    """

    service: int = 0
    delay: int = 0
    started: int = 0
    finished: int = 0
    worker: int = 0
    order: int = 0


@dataclass(slots=True)
class Worker:
    """Who works off one message after the other, and then asks for more.

    Attributes:
        place: When the message that it works on is done.
        tie: Its number.
        spot: Where in the crew's heap it is; zero: it is idle.
        rest: How many messages it has in hand besides.
    """

    place: int = NEVER
    tie: int = 0
    spot: int = 0
    rest: int = 0


@dataclass(slots=True)
class Pick:
    """A channel in one pass of a dequeue.

    Attributes:
        channel: Which.
        turn_left: Messages left in its turn.
        quota: How many it may give.
        got: How many it gave.
    """

    channel: int = 0
    turn_left: int = 0
    quota: int = 0
    got: int = 0


class Dispatcher(NamedTuple):
    """What dequeue works on.

    Attributes:
        channels: With their policies, and their room for messages laid out.
        messages: All that ever come.
        line: A heap of channels: its size, then the channels that may be served, the first on top.
        run: Room for all messages.
        strays: The same.
        picks: Room for as many as a batch or, if fewer, channels.
        aside: Room for all channels.
        ahead: Place and weight of who stood first in line when the last call ended: the next one sees that before it
            hears of anything.
        max_concurrency: Of the queue; NEVER: no limit.
        fair: Whether channels take turns; otherwise what is due first comes first.
    """

    channels: Sequence[Channel]
    messages: Sequence[Message]
    line: Integers
    run: Integers
    strays: Integers
    picks: Sequence[Pick]
    aside: Integers
    ahead: Integers
    max_concurrency: int
    fair: bool


class Crew(NamedTuple):
    """Who works.

    Attributes:
        workers: All of them.
        heap: A heap of those who are at work: its size, then the workers, who is done first on top.
        idle: The others.
        hand: Room for a batch a worker.
        batch: Messages that a worker can get at once.
        asked: Messages that it asks for, which may be more than there are.
        begin: When they begin to ask.
    """

    workers: Sequence[Worker]
    heap: Integers
    idle: Integers
    hand: Integers
    batch: int
    asked: int
    begin: int


Row = TypeVar("Row", Channel, Message, Attempt, Worker, Pick)


def records(kind: type[Row], count: int) -> Any:
    """As many rows of a kind as a numpy record array, each with the defaults of its fields."""
    rows = np.zeros(count, dtype=[(field.name, np.int64) for field in fields(kind)])
    for field in fields(kind):
        if field.default:
            rows[field.name] = field.default
    return rows


def objects(kind: type[Row], rows: Any) -> list[Row]:
    """The rows of a record array as objects."""
    return [kind(*row) for row in rows.tolist()]
