"""Operations that a transaction can ask of a queue, as values, and the steps that they are sent in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy_fairqueue.database import EncodedMessage, EncodedResult, ScheduleDefinition, Target
from sqlalchemy_fairqueue.values import UNSET

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from sqlalchemy_fairqueue.database import Call, CommitRefused
    from sqlalchemy_fairqueue.values import (
        CancelReceipt,
        ChannelPolicy,
        Delivery,
        Enqueue,
        PolicyChanges,
        PurgeReceipt,
        QueueChanges,
        QueueLimits,
        Receipt,
        Unset,
    )

__all__ = [
    "Cancel",
    "Configuration",
    "Configure",
    "ConfigureLimit",
    "ConfigurePlan",
    "EnqueueMessage",
    "Limit",
    "MakeGroup",
    "MessageChange",
    "Operation",
    "Pause",
    "PauseSchedule",
    "Purge",
    "ReceiptUpdate",
    "RemoveSchedule",
    "ScheduleChange",
    "SetQueue",
    "SetSchedule",
    "Settle",
    "Step",
    "Target",
    "Verb",
]

ReceiptUpdate = Callable[[], None]
"""Fills in the outcome of an operation, to be called once that is certain."""


class Verb(Enum):
    """The ways to settle a delivery."""

    COMPLETE = "complete"
    RETRY = "retry"
    RELEASE = "release"
    BURY = "bury"


class EnqueueMessage(NamedTuple):
    """Add a message. A tuple, as :class:`Settle`.

    Attributes:
        target: The queue.
        message: The message.
        content: Its payload, encoded.
        headers: Its headers as JSON text.
        max_attempts: Its own or the queue's.
        policy: For its channel, if that is made now and the queue has no configured one.
        receipt: Gets its outcome.
        group_id: The group that it is to be a member of.
        adder: The delivery of the member that adds it to a group; None: the transaction makes the group.
    """

    target: Target
    message: Enqueue
    content: bytes
    headers: str | None
    max_attempts: int
    policy: ChannelPolicy
    receipt: Receipt
    group_id: UUID | None = None
    adder: Delivery | None = None


@dataclass(frozen=True, slots=True)
class Configure:
    """Change the policy of a channel or, if the channel is None, the defaults of the queue for new channels.

    Attributes:
        target: The queue.
        channel: The channel.
        changes: The fields to change.
        policy: The policy before the change, for a channel that is new or a queue without defaults.
        plan: The plan that a channel follows from now on. None: none.
        reset: Fields of a channel that its plan decides again.
    """

    target: Target
    channel: str | None
    changes: PolicyChanges
    policy: ChannelPolicy
    plan: str | Unset | None = UNSET
    reset: tuple[str, ...] = ()

    @property
    def limits_concurrency(self) -> bool:
        """Whether the channel may get a max_concurrency by it."""
        if "max_concurrency" in self.changes:
            return self.changes["max_concurrency"] is not None
        return isinstance(self.plan, str) or "max_concurrency" in self.reset


@dataclass(frozen=True, slots=True)
class Limit:
    """Change limits of the whole queue: ``max_concurrency``, ``rate``, the names of shared limits. None: no limit."""

    target: Target
    changes: QueueLimits


@dataclass(frozen=True, slots=True)
class ConfigureLimit:
    """Make or change a shared limit of the installation that a queue belongs to. Changes None: remove it."""

    target: Target
    name: str
    changes: PolicyChanges | None


@dataclass(frozen=True, slots=True)
class ConfigurePlan:
    """Make or change a plan of a queue. Changes None: remove it."""

    target: Target
    name: str
    changes: PolicyChanges | None


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Change settings of a queue."""

    target: Target
    changes: QueueChanges


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop or go on serving a channel, or with channel None the whole queue.

    Attributes:
        target: The queue.
        channel: The channel.
        paused: Whether to stop.
        new: Whether a channel that is to be paused is made if it does not exist.
    """

    target: Target
    channel: str | None
    paused: bool
    new: bool = False


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete the undelivered messages of a channel."""

    target: Target
    channel: str
    receipt: PurgeReceipt


class Settle(NamedTuple):
    """Settle a delivery. A tuple, since that is made in a third of the time.

    Attributes:
        target: The queue.
        verb: How.
        delivery: The delivery.
        delay: For retry and release.
        reason: For bury.
        error: For retry and bury.
        cost: What the attempt cost. None: as it was charged.
        result: For complete: what is kept where the delivery keeps a result. None: None.
    """

    target: Target
    verb: Verb
    delivery: Delivery
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None
    cost: int | None = None
    result: EncodedResult | None = None

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


@dataclass(frozen=True, slots=True)
class SetSchedule:
    """Make a schedule, or change the one of its name."""

    target: Target
    definition: ScheduleDefinition

    @property
    def channel(self) -> str:
        """The channel that it belongs to."""
        return self.definition.message.message.channel

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name


@dataclass(frozen=True, slots=True)
class RemoveSchedule:
    """Remove a schedule, if it is there."""

    target: Target
    channel: str
    name: str


@dataclass(frozen=True, slots=True)
class PauseSchedule:
    """Stop the slots of a schedule, or go on with them."""

    target: Target
    channel: str
    name: str
    paused: bool


@dataclass(frozen=True, slots=True)
class MakeGroup:
    """Make a group of messages.

    Attributes:
        target: The queue.
        group_id: Its id.
        then: What follows it.
        on_failure: What follows it instead, if a member failed or was cancelled.
        policy: For the channels of these, if they are new by then and the queue has no configured one.
        sent: Called after the commit.
    """

    target: Target
    group_id: UUID
    then: EncodedMessage | None
    on_failure: EncodedMessage | None
    policy: ChannelPolicy
    sent: ReceiptUpdate


Configuration = Configure | ConfigureLimit | ConfigurePlan | Limit | Pause | Purge | SetQueue
MessageChange = Settle | Cancel
ScheduleChange = SetSchedule | RemoveSchedule | PauseSchedule
Operation = EnqueueMessage | MakeGroup | Configuration | MessageChange | ScheduleChange


def _no_updates(rows: Sequence[Any]) -> list[ReceiptUpdate]:  # noqa: ARG001 - as for Step
    """For a statement that nobody waits for the answer of."""
    return []


def _no_failure(refused: CommitRefused) -> Exception:
    """For a statement that is not refused."""
    return refused


class Step(NamedTuple):
    """One statement, and what follows from its answer.

    Attributes:
        call: The statement. It fails by itself where the transaction must not be committed.
        updates: Makes the updates of receipts from its rows.
        failure: Makes the error to raise from the server's refusal.
    """

    call: Call
    updates: Callable[[Sequence[Any]], list[ReceiptUpdate]] = _no_updates
    failure: Callable[[CommitRefused], Exception] = _no_failure
