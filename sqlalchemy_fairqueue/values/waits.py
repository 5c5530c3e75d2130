"""Reasons for which channels and messages wait, with who has what they wait for, and what drained workers leave."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.texts import clean

if TYPE_CHECKING:
    from datetime import datetime


class Reason(StrEnum):
    """The reasons of a wait. The first one that holds is given: lifting the others would change nothing.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.pause(engine, "customer-7")
        >>> queue.message(engine, message_id).wait.reason is Reason.PAUSED
        True
    """

    QUEUE_PAUSED = "queue paused"
    PAUSED = "paused"
    NO_CONSUMER = "no consumer"
    OWN_LIMIT = "own limit"
    RATE = "rate"
    QUEUE_LIMIT = "queue limit"
    QUEUE_RATE = "queue rate"
    SHARED_LIMIT = "shared limit"
    SHARED_RATE = "shared rate"
    CAPACITY = "capacity"
    """It has the share of the consumers that it is entitled to and more work than that serves, or no other channel has
    messages out: what it lacks is a consumer that takes more."""
    TURN = "others' turn"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True)
class Taker:
    """A channel that takes capacity.

    Attributes:
        channel: Its name.
        leased: Its messages that consumers hold.
        share: These as a part of all messages that consumers of the queue hold, 0 to 1.
        entitled: The part that its weight entitles it to, 0 to 1.

    Example:
        >>> queue.configure(engine, max_concurrency=1)
        >>> _, waiting = [queue.enqueue(engine, channel=name, payload=1) for name in ("customer-7", "customer-8")]
        >>> [delivery] = queue.dequeue(engine)
        >>> [taker] = queue.message(engine, waiting.message_id).wait.takers
        >>> taker.channel, taker.leased, taker.share, taker.entitled
        ('customer-7', 1, 1.0, 0.5)
    """

    channel: str
    leased: int
    share: float
    entitled: float


@dataclass(frozen=True, slots=True)
class QueueTaker:
    """A queue that takes of a shared limit.

    Attributes:
        queue: Its name.
        leased: Its messages that consumers hold.

    Example:
        >>> queue.limits.configure(engine, "mail", max_concurrency=2)
        >>> news = Queue("news")
        >>> for each in (queue, news):
        ...     each.configure(engine, limits=["mail"])
        ...     _, waiting = [each.enqueue(engine, channel="customer-7", payload=number) for number in (1, 2)]
        ...     deliveries = each.dequeue(engine, limit=1)
        >>> wait = news.message(engine, waiting.message_id).wait
        >>> [(taker.queue == queue.name, taker.leased) for taker in wait.queues]
        [(True, 1)]
    """

    queue: str
    leased: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason for which a message waits, and who has what it waits for.

    Attributes:
        reason: Why it waits.
        until: When the reason ends at the latest, by a rate or by the time for which it is scheduled. None: that is not
            known.
        takers: The channels of the queue that take the capacity it waits for, the most first. Empty: the reason is its
            own.
        limit: The shared limit that holds it back, or None.
        queues: The other queues that draw from that limit, those with the most messages out first.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> wait = queue.message(engine, message_id).wait
        >>> str(wait.reason), wait.takers
        ('no consumer', ())
    """

    reason: Reason
    until: datetime | None = None
    takers: tuple[Taker, ...] = ()
    limit: str | None = None
    queues: tuple[QueueTaker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverReason:
    """A reason for which messages of a queue wait, and how many do.

    Attributes:
        reason: Why they wait.
        messages: How many.
        channels: In how many channels.
        until: When the first of the channels is free of it at the latest. None: that is not known.
        limit: The shared limit that holds them back, or None.

    Example:
        >>> @queue.handler
        ... def greet(delivery: Delivery) -> None: ...
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.pause(engine, "customer-7")
        >>> worker = Worker(engine, queue)
        >>> worker.run(drain=True)
        >>> [(str(one.reason), one.messages) for one in worker.leftovers()[0].reasons]
        [('paused', 1)]
    """

    reason: Reason
    messages: int
    channels: int
    until: datetime | None = None
    limit: str | None = None

    def __str__(self) -> str:
        """Its reason and counts, in a line."""
        name = f"{self.reason} {clean(self.limit)}" if self.limit else str(self.reason)
        channels = "1 channel" if self.channels == 1 else f"{self.channels:,} channels"
        first = f"; the first may go at {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else ""
        return f"{name}: {self.messages:,} in {channels}{first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The messages that a drained worker leaves in one of its queues.

    ``str`` of it has a line for the queue and one for each reason.

    Attributes:
        queue: Name of the queue.
        ready: Its messages that could be delivered now, as far as time goes.
        scheduled: Its messages that are due later.
        leased: Its messages that consumers hold.
        reasons: Why the ready and the scheduled ones wait, the reason of the most messages first. They are of at most
            1,000 channels, while the counts are of all.

    Example:
        >>> @queue.handler
        ... def greet(delivery: Delivery) -> None: ...
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(hours=1))
        >>> worker = Worker(engine, queue)
        >>> worker.run(drain=True)
        >>> print(*worker.leftovers())
        left in queue documents...: 1 scheduled
          scheduled: 1 in 1 channel
    """

    queue: str
    ready: int
    scheduled: int
    leased: int
    reasons: tuple[LeftoverReason, ...] = ()

    def __str__(self) -> str:
        """The counts and the reasons, in several lines."""
        counts = (("ready", self.ready), ("scheduled", self.scheduled), ("leased", self.leased))
        words = ", ".join(f"{count:,} {name}" for name, count in counts if count)
        return "\n".join([f"left in queue {clean(self.queue)}: {words}", *(f"  {one}" for one in self.reasons)])
