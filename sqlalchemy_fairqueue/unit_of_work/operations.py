"""What a transaction can ask of a queue, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from sqlalchemy_fairqueue.values import CancelReceipt, ChannelPolicy, Delivery, Enqueue, PurgeReceipt, Receipt


@dataclass(frozen=True, slots=True)
class Target:
    """A queue in a database: where an operation goes.

    Attributes:
        schema: Where the queue is installed; None: found through the search_path.
        queue: Name of the queue.
        bind_arguments: How a session with several engines finds the one that holds the queue.
        notify: Whether transactions may wake consumers that sleep.
    """

    schema: str | None
    queue: str
    bind_arguments: Mapping[str, Any] | None = field(default=None, compare=False)
    notify: bool = field(default=True, compare=False)


class Verb(Enum):
    """How a delivery ends."""

    COMPLETE = "complete"
    RETRY = "retry"
    RELEASE = "release"
    BURY = "bury"


@dataclass(frozen=True, slots=True)
class EnqueueMessage:
    """Add a message.

    Attributes:
        target: The queue.
        message: What to add.
        content: Its payload, encoded.
        headers: Its headers as JSON text.
        max_attempts: Its own or the queue's.
        policy: For its channel, if that is made now and the queue has no configured one.
        receipt: Told what became of it.
    """

    target: Target
    message: Enqueue
    content: bytes
    headers: str | None
    max_attempts: int
    policy: ChannelPolicy
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Configure:
    """Set the policy of a channel, or with channel None the one that new channels of the queue start with."""

    target: Target
    channel: str | None
    policy: ChannelPolicy


@dataclass(frozen=True, slots=True)
class Limit:
    """Set how many messages of the whole queue may be in consumers' hands at once. None: no limit."""

    target: Target
    max_concurrency: int | None


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """Say whether a queue's attempts are recorded, and for how long records are kept. None: as it is."""

    target: Target
    history: bool | None
    retention: timedelta | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop or go on serving a channel, or with channel None the whole queue."""

    target: Target
    channel: str | None
    paused: bool


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete the undelivered messages of a channel."""

    target: Target
    channel: str
    receipt: PurgeReceipt


@dataclass(frozen=True, slots=True)
class Settle:
    """End a delivery."""

    target: Target
    verb: Verb
    delivery: Delivery
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None

    @property
    def message_id(self) -> int:
        """The message."""
        return self.delivery.message_id


@dataclass(frozen=True, slots=True)
class Cancel:
    """Withdraw a message."""

    target: Target
    message_id: int
    receipt: CancelReceipt


Setting = Configure | Limit | RecordHistory | Pause | Purge
End = Settle | Cancel
Operation = EnqueueMessage | Setting | End
