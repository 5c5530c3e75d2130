"""The values that calls take and give: policies, what to enqueue, receipts, deliveries.

They know nothing of sessions or SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.times import instant_microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_BYTES = 512
# PostgreSQL cuts longer identifiers off.
SCHEMA_BYTES = 63
_YEAR = timedelta(days=365)


def check_name(what: str, value: object, most: int = NAME_BYTES) -> None:
    """Refuse a name that PostgreSQL or an index could not keep.

    Raises:
        InvalidArgument: It is not a str, empty, longer than *most* bytes of UTF-8, or holds a NUL character or a lone
            surrogate.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is a {type(value).__name__}: {value!r:.80}; give a str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} {value!r:.80} holds a lone surrogate; remove it") from None
    if not 1 <= size <= most:
        raise InvalidArgument(f"{what} {value!r:.80} has {size} bytes of UTF-8; use 1 to {most}")
    if "\x00" in value:
        raise InvalidArgument(f"{what} {value!r:.80} holds a NUL character; remove it")


def check_count(what: str, value: object, least: int, most: int) -> None:
    """Refuse a number that is not an int between *least* and *most*."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgument(f"{what} is {value!r:.80}; give an int from {least} to {most}")


def check_text(what: str, value: object) -> str:
    """A text that PostgreSQL can keep, whatever was in it: a report about a failure must never fail for what it says.

    Raises:
        InvalidArgument: It is not a str.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is {value!r:.80}; give a str")
    return value.replace("\x00", "\ufffd").encode(errors="replace").decode()


def check_duration(what: str, value: object, least: timedelta = timedelta()) -> None:
    """Refuse a duration that is not a timedelta between *least* and 365 days."""
    if not isinstance(value, timedelta) or not least <= value <= _YEAR:
        raise InvalidArgument(f"{what} is {value!r:.80}; give a timedelta from {least} to {_YEAR.days} days")


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """How a channel is served.

    Attributes:
        max_concurrency: Most messages of the channel in consumers' hands at once, exactly. None: no limit.
        release_interval: Time between two messages on average; zero: no rate limit.
        release_burst: Messages that may come in a row before release_interval applies (generic cell rate algorithm,
            ITU-T I.371).
        weight: Messages a turn: a channel of weight 3 gets three times the share of one of weight 1 while both have
            work.
    """

    max_concurrency: int | None = None
    release_interval: timedelta = timedelta()
    release_burst: int = 1
    weight: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be kept."""
        if self.max_concurrency is not None:
            check_count("max_concurrency", self.max_concurrency, 1, 2**31 - 1)
        check_duration("release_interval", self.release_interval)
        check_count("release_burst", self.release_burst, 1, 1_000_000)
        check_count("weight", self.weight, 1, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """A message to be.

    Attributes:
        channel: Which channel, usually the tenant; 1 to 512 bytes. Made on first use.
        payload: Anything that the queue's codec takes.
        kind: Which handler it is for.
        delay: Not before so much time from the sending of the transaction's queue work. At most one of delay, at and
            priority.
        at: Not before this instant (aware); one in the past means now.
        priority: 1 or more: before ordinary messages of the channel, 5 before 1.
        key: Unique among the messages of the channel that are not completed or dead: while one stands, another is not
            added.
        headers: Small JSON object beside the payload, for tracing and routing.
        max_attempts: Deliveries after which a failing message becomes a dead letter. None: the queue's.
    """

    channel: str
    payload: Any
    kind: str = "default"
    delay: timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    headers: Mapping[str, Any] | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be kept, before anything is recorded."""
        check_name("channel", self.channel)
        check_name("kind", self.kind)
        if self.key is not None:
            check_name("key", self.key)
        given = [name for name in ("delay", "at", "priority") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidArgument(
                f"message has {' and '.join(given)}; a message is prioritised, delayed or scheduled: give one of them"
            )
        if self.delay is not None:
            check_duration("delay", self.delay)
        if self.at is not None:
            if not isinstance(self.at, datetime):
                raise InvalidArgument(f"at is {self.at!r:.80}; give an aware datetime")
            try:
                instant_microseconds(self.at)
            except ValueError as error:
                raise InvalidArgument(f"at: {error}") from None
        if self.priority is not None:
            check_count("priority", self.priority, 1, 2**31 - 1)
        if self.max_attempts is not None:
            check_count("max_attempts", self.max_attempts, 1, 2**31 - 1)


@dataclass(slots=True, eq=False)
class Receipt:
    """What enqueue returns: it knows the message once the transaction has committed.

    Attributes:
        channel: The channel.
        message_id: The message's id; None until the commit. For a key that stood already: the message that holds it.
        created: Whether a message was added; None until the commit. False: its key stood already in the channel.
    """

    channel: str
    message_id: int | None = None
    created: bool | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """A consumer's claim on what it was given.

    Attributes:
        id: Random, never seen again.
        consumer: Who holds it.
        expires_at: When it ends unless extended, by the database's clock.
    """

    id: int
    consumer: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message in a consumer's hands, under a lease.

    Whoever holds it owes it one complete, retry, release or bury before the lease ends.

    Attributes:
        message_id: The message.
        queue: Name of the queue.
        channel: Name of the channel.
        kind: Which handler it is for.
        content: The payload as it is stored.
        headers: What was enqueued as headers, or None.
        attempt: Which attempt this is, from 1; a release is not counted.
        max_attempts: After so many the message becomes a dead letter.
        enqueued_at: When it was enqueued, in UTC.
        lease: The lease that it is held under.
        deliveries: How often it was handed out, ever. With message_id and the lease's id it is the fencing token.
        row_id: Where the row stood when it was delivered.
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

    @property
    def payload(self) -> Any:
        """The decoded payload.

        Raises:
            PayloadError: The content is not the codec's. Only this message is concerned: bury it, the others are fine.
        """
        if isinstance(self.decoded, PayloadError):
            raise self.decoded
        return self.decoded


class Batch(list[Delivery]):
    """The deliveries of one dequeue, in turn order.

    Attributes:
        due_in: How long until something else may be due: zero, try again; None, nothing is scheduled. A hint, never a
            promise.
    """

    def __init__(self, deliveries: list[Delivery], due_in: timedelta | None) -> None:
        super().__init__(deliveries)
        self.due_in = due_in
