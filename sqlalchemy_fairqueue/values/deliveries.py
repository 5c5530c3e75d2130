"""Deliveries and leases: messages that a consumer holds, and until when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.values.checks import check_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Lease:
    """The time for which a consumer holds the messages that it was given.

    Attributes:
        id: Random, never seen again.
        consumer: Who holds it.
        expires_at: When it ends unless extended, by the database's clock.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine, lease=timedelta(minutes=5))
        >>> delivery.lease.expires_at - datetime.now(UTC) > timedelta(minutes=4)
        True
        >>> delivery.lease.lost, delivery.lease.lost_for(delivery)
        (False, False)
    """

    id: int
    consumer: str
    expires_at: datetime

    @property
    def lost(self) -> bool:
        """Whether its holder knows already that it is lost. Only a worker's leases know."""
        return False

    def lost_for(self, delivery: Delivery) -> bool:  # noqa: ARG002 - for those that know
        """Return whether the holder knows that it has lost a delivery. Only the leases of a worker know."""
        return False


class Once:
    """A value that is made when it is asked for, once."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def value(self) -> Any:
        """Return the value, made at the first call; several threads at once may make it more than once."""
        make = self._make
        if make is not None:
            self._value = make()
            self._make = None
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it has made."""
        return _made, (self.value(),)


def _made(value: Any) -> Once:
    return Once(lambda: value)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A message that a consumer holds under a lease.

    The holder owes it one complete, retry, release or bury before the lease ends.

    Attributes:
        message_id: The message.
        queue: Name of the queue.
        channel: Name of the channel.
        kind: Which handler it is for.
        content: The payload as it is stored.
        headers: The headers as they were enqueued; None without any, or if Python cannot read them.
        attempt: Which attempt this is, from 1; a release is not counted.
        max_attempts: After so many the message becomes a dead letter.
        enqueued_at: When it was enqueued, in UTC.
        lease: The lease that it is held under.
        deliveries: How often it was handed out, ever. With message_id and the lease's id it is the fencing token.
        row_id: Where the row stood when it was delivered.
        holds_slot: Whether to settle it may free a slot of a limit, its channel's or the queue's: False, it does not.
        settled: How this process has settled it ("complete", "retry", "release", "bury"), added when that was
            committed, on a Connection when it was sent.
        is_timed: Whether its queue is fair by seconds, so that a worker measures how long the handler takes.
        keeps_result: Whether its queue kept results when it was delivered, so that its completion keeps one.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload={"file": "a.pdf"}, kind="parse")
        >>> [delivery] = queue.dequeue(engine)
        >>> delivery.channel, delivery.kind, delivery.payload["file"], delivery.attempt
        ('customer-7', 'parse', 'a.pdf', 1)
    """

    message_id: int
    queue: str
    channel: str
    kind: str
    content: bytes
    # Part of the value, but a dict has no hash.
    headers: dict[str, Any] | None = field(hash=False)
    attempt: int
    max_attempts: int
    enqueued_at: datetime
    lease: Lease
    deliveries: int
    row_id: str = field(repr=False)
    decoded: Any = field(repr=False, compare=False)
    holds_slot: bool = field(default=True, repr=False)
    is_timed: bool = field(default=False, repr=False)
    keeps_result: bool = field(default=False, repr=False)
    settled: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """The decoded payload. It is decoded when it is first asked for, so that a large one costs nothing until then.

        Raises:
            PayloadError: The content is not the codec's, or the headers are nothing that Python can read. Only this
                message is concerned: bury it, the others are fine.
        """
        decoded = self.decoded.value() if isinstance(self.decoded, Once) else self.decoded
        if isinstance(decoded, PayloadError):
            raise decoded
        return decoded


def delivery_of(fields: dict[str, Any], decoded: Any) -> Delivery:
    """Make a delivery that keeps *fields* as its own, without checks, for dequeues of many messages.

    It takes a fifth of the time: a frozen dataclass sets its fields one by one.
    """
    fields.update(decoded=decoded, settled=[])
    made = object.__new__(Delivery)
    object.__setattr__(made, "__dict__", fields)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How many messages one call of a handler gets: ``@queue.handler("embed", batch=Batch(max_messages=50))``.

    Attributes:
        max_messages: Most messages of a call, 2 to 1,000.
        max_cost: Most that the messages of a call cost together, in the unit of ``enqueue(cost=)``; a single one may
            cost more. None: any.

    Raises:
        InvalidArgument: A bad number.

    Example:
        >>> @queue.handler("embed", batch=Batch(max_messages=50, max_cost=8000))
        ... def embed(deliveries: list[Delivery]) -> None:
        ...     print(deliveries[0].channel, [delivery.payload for delivery in deliveries])
        >>> receipts = queue.enqueue_many(
        ...     engine, [Enqueue(channel="customer-7", payload=text, kind="embed") for text in ("one", "two")]
        ... )
        >>> Worker(engine, queue, concurrency=1).run(drain=True)
        customer-7 ['one', 'two']
    """

    max_messages: int
    max_cost: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_count("max_messages", self.max_messages, 2, 1000)
        if self.max_cost is not None:
            check_count("max_cost", self.max_cost, 1, 10**15)


class Deliveries(list[Delivery]):
    """The deliveries of one dequeue, in the order of their start tags.

    Attributes:
        due_in: How long until something else may be due: zero, try again; None, nothing is scheduled. A hint, never a
            promise.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(minutes=5))
        >>> batch = queue.dequeue(engine)
        >>> len(batch), batch.due_in > timedelta(minutes=4)
        (0, True)
    """

    def __init__(self, deliveries: list[Delivery], due_in: timedelta | None) -> None:
        super().__init__(deliveries)
        self.due_in = due_in
