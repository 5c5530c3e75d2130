"""Leftovers: the messages that a drained worker leaves in a queue, with the reasons for which they wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.texts import clean

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy_fairqueue.values.waits import Reason


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
