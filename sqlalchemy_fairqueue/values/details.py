"""Details of single messages and of groups of dead letters, for inspection and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, overload

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy_fairqueue.values.waits import Wait

MessageState = Literal["leased", "scheduled", "ready"]
MoveOutcome = Literal["moved", "unchanged", "leased", "duplicate", "missing"]
RetryNowOutcome = Literal["due", "unchanged", "redriven", "leased", "duplicate", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetails:
    """A message that is not settled, at the time of the call.

    Attributes:
        message_id: The message.
        channel: Name of the channel.
        kind: Which handler it is for. None: it cannot be read.
        content: The beginning of the payload as it is stored.
        content_size: Bytes of the whole payload. None: it cannot be read.
        headers: Its headers as JSON, or None.
        key: Its key, or None.
        enqueued_at: When it was enqueued, in UTC.
        due_at: From when on it may be delivered, in UTC.
        delivered_at: When it was last delivered, in UTC. None: never, or its queue records no history.
        returned_at: When it last came back undone, in UTC. None: never, or its queue records no history.
        attempts: How many attempts were counted.
        max_attempts: After how many it becomes a dead letter. The retry policy of its kind may allow fewer.
        deliveries: How often it was handed out, ever.
        cancelled: Whether it was cancelled while a consumer holds it.
        consumer: Who holds it. None: nobody.
        expires_at: When that consumer's lease expires unless it is extended, in UTC.
        error: The last error, or None.
        unreadable: Why it cannot be read. None: it can.
        messages_ahead: How many messages of its channel come before it. None: 1,000 or more, or a consumer holds it,
            or it is one of a page.
        wait: Why it waits, if :meth:`~sqlalchemy_fairqueue.Queue.message` was asked. None: a consumer holds it, or it
            was not asked.
        history: The attempts that ended before, the first first, if :meth:`~sqlalchemy_fairqueue.Queue.message` was
            asked: those that its queue recorded, the last 100.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse").message_id
        >>> message = queue.message(engine, message_id)
        >>> message.kind, message.state(datetime.now(UTC)), message.messages_ahead
        ('parse', 'ready', 0)
    """

    message_id: int
    channel: str
    kind: str | None
    content: bytes = field(repr=False)
    content_size: int | None
    headers: str | None = field(repr=False)
    key: str | None
    enqueued_at: datetime
    due_at: datetime
    delivered_at: datetime | None
    returned_at: datetime | None
    attempts: int
    max_attempts: int
    deliveries: int
    cancelled: bool
    consumer: str | None
    expires_at: datetime | None
    error: str | None
    unreadable: str | None
    messages_ahead: int | None = None
    wait: Wait | None = None
    history: tuple[AttemptDetails, ...] = ()

    def state(self, now: datetime) -> MessageState:
        """Its state: "leased", a consumer holds it; "scheduled", it is due after *now*; "ready", it waits."""
        if self.consumer is not None:
            return "leased"
        return "scheduled" if self.due_at > now else "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDetails:
    """An attempt at a message that has ended without completing it, from the history of its queue.

    Attributes:
        attempt: Which attempt it was, as the message counted.
        channel: The channel that the message was in.
        consumer: Who held it. None: that is not known any more.
        ready_at: Since when the message was ready before it, in UTC.
        started_at: When it was delivered, in UTC.
        finished_at: When the attempt ended, in UTC.
        outcome: "retried", "released", "buried", "expired" (its lease ended) or "cancelled".
        error: The beginning of its error, or None.

    Example:
        >>> queue.configure(engine, history=True)
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.retry(engine, queue.dequeue(engine), error="busy")
        >>> [attempt] = queue.admin.attempts(engine, message_id)
        >>> attempt.attempt, attempt.outcome, attempt.error
        (1, 'retried', 'busy')
    """

    attempt: int
    channel: str
    consumer: str | None
    ready_at: datetime
    started_at: datetime
    finished_at: datetime
    outcome: str
    error: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class MessagePage(Sequence[MessageDetails]):
    """A page of messages, in order: a sequence of them.

    Attributes:
        messages: The messages. There may be none on a page that is not the last.
        next: Where the next page begins: ``queue.messages(..., after=page.next)``. None: this is the last page.

    Example:
        >>> message_ids = [queue.enqueue(engine, channel="customer-7", payload=page).message_id for page in (1, 2, 3)]
        >>> page = queue.messages(engine, channel="customer-7", limit=2)
        >>> [message.message_id for message in page] == message_ids[:2]
        True
        >>> len(queue.messages(engine, channel="customer-7", limit=2, after=page.next))
        1
    """

    messages: tuple[MessageDetails, ...]
    next: str | None

    @overload
    def __getitem__(self, index: int) -> MessageDetails: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MessageDetails]: ...
    def __getitem__(self, index: int | slice) -> MessageDetails | Sequence[MessageDetails]:
        """One message, or some of them."""
        return self.messages[index]

    def __len__(self) -> int:
        """The number of its messages."""
        return len(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters of a queue with the same kind, reason and error.

    Attributes:
        kind: Which handler they are for. None: they cannot be read.
        reason: Why they died.
        error: The last line of their error, numbers replaced by #; or None.
        letters: How many they are.
        channels: Of how many channels.
        first_died_at: When the first of them died, in UTC.
        last_died_at: When the last of them died, in UTC.
        message_ids: The newest of them.
    """

    kind: str | None
    reason: str | None
    error: str | None
    letters: int
    channels: int
    first_died_at: datetime
    last_died_at: datetime
    message_ids: tuple[int, ...] = field(repr=False)
