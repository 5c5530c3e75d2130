"""Operations that a transaction can ask of a queue, as values: each knows its phase, its locks, and how it is sent.

A transaction sends its operations phase by phase, so that its locks come in one order (:mod:`.locks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import EncodedMessage, EncodedResult, ScheduleDefinition, Target
from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.values import UNSET, ChannelPolicy

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database import Call, CommitRefused
    from sqlalchemy_fairqueue.values import (
        CancelReceipt,
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

ENQUEUES, GROUPS, CONFIGURATION, MESSAGES, SCHEDULES = range(5)
"""The phases, in the order in which they are sent."""


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

    @property
    def phase(self) -> int:
        """Its phase."""
        return ENQUEUES


SETTING, CHANGE, REMOVAL = range(3)


class Locks(NamedTuple):
    """What a configuration locks, and when it is sent.

    Attributes:
        order: Its place among the configurations of its queue; those of one place are sent in the order of their calls.
        stage: SETTING: it locks nothing but rows of settings, and is sent before the other locks are taken. REMOVAL:
            nothing else may use what it removes by then, so it is sent last. Else CHANGE.
        queue: Whether it locks the row of its queue.
        channel: The channel whose state it locks.
        policy: Of that channel, if it is made now. None: it is not made.
        changed_plan: The plan that it changes or removes.
        used_plan: The plan that it puts a channel on.
        limits: Whether its channel, or without one its queue, may get a limit by it, for which leased messages count.
    """

    order: tuple[int, bytes]
    stage: int = CHANGE
    queue: bool = False
    channel: str | None = None
    policy: ChannelPolicy | None = None
    changed_plan: str | None = None
    used_plan: str | None = None
    limits: bool = False


def _of_channel(channel: str | None, policy: ChannelPolicy | None = None, **others: Any) -> Locks:
    """The locks of what changes a channel or, if that is None, its queue."""
    if channel is None:
        return Locks((2, b""), SETTING, queue=True)
    return Locks((2, channel.encode()), channel=channel, policy=policy, **others)


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

    phase: ClassVar[int] = CONFIGURATION

    @property
    def locks(self) -> Locks:
        """What it locks."""
        plan = self.plan if isinstance(self.plan, str) else None
        limits = plan is not None or "max_concurrency" in self.reset
        if "max_concurrency" in self.changes:
            limits = self.changes["max_concurrency"] is not None
        return _of_channel(self.channel, self.policy, used_plan=plan, limits=limits)

    def send(self, connection: Connection) -> list[ReceiptUpdate]:
        """Do it."""
        if self.channel is None:
            database.configure_queue(connection, self.target, self.changes, policy=self.policy)
        else:
            database.configure_channel(
                connection,
                self.target,
                self.channel,
                self.changes,
                policy=self.policy,
                plan=self.plan,
                reset=self.reset,
                notify=self.target.notify,
            )
        return []


@dataclass(frozen=True, slots=True)
class Limit:
    """Change limits of the whole queue: ``max_concurrency``, ``rate``, the names of shared limits. None: no limit."""

    target: Target
    changes: QueueLimits

    phase: ClassVar[int] = CONFIGURATION

    @property
    def locks(self) -> Locks:
        """What it locks: the leased messages of all channels too, before which come their states."""
        return Locks((3, b""), queue=True, limits=any(value is not None for value in self.changes.values()))

    def send(self, connection: Connection) -> list[ReceiptUpdate]:
        """Do it."""
        database.limit_queue(connection, self.target, self.changes, notify=self.target.notify)
        return []


@dataclass(frozen=True, slots=True)
class ConfigureLimit:
    """Make or change a shared limit of the installation that a queue belongs to. Changes None: remove it."""

    target: Target
    name: str
    changes: PolicyChanges | None

    phase: ClassVar[int] = CONFIGURATION

    @property
    def locks(self) -> Locks:
        """What it locks."""
        return Locks((0, self.name.encode()), REMOVAL if self.changes is None else SETTING)

    def send(self, connection: Connection) -> list[ReceiptUpdate]:
        """Do it. To remove one that does not exist is no error."""
        if self.changes is None:
            doing = f"remove limit {self.name!r}"
            call(self.target.schema, "fq_remove_limit", doing, name=self.name).rows(connection)
        else:
            database.configure_limit(connection, self.target.schema, self.name, self.changes)
        return []


@dataclass(frozen=True, slots=True)
class ConfigurePlan:
    """Make or change a plan of a queue. Changes None: remove it."""

    target: Target
    name: str
    changes: PolicyChanges | None

    phase: ClassVar[int] = CONFIGURATION

    @property
    def locks(self) -> Locks:
        """What it locks."""
        stage = REMOVAL if self.changes is None else SETTING
        return Locks((1, self.name.encode()), stage, queue=True, changed_plan=self.name)

    def send(self, connection: Connection) -> list[ReceiptUpdate]:
        """Do it. To remove one that does not exist is no error."""
        if self.changes is None:
            doing = f"remove plan {self.name!r} of queue {self.target.queue!r}"
            self.target.call("fq_remove_plan", doing, name=self.name).rows(connection)
        else:
            database.configure_plan(connection, self.target, self.name, self.changes, notify=self.target.notify)
        return []


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Change settings of a queue."""

    target: Target
    changes: QueueChanges

    phase: ClassVar[int] = CONFIGURATION
    locks: ClassVar[Locks] = Locks((2, b""), SETTING, queue=True)

    def send(self, connection: Connection) -> list[ReceiptUpdate]:
        """Do it."""
        database.set_queue(connection, self.target, self.changes)
        return []


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

    phase: ClassVar[int] = CONFIGURATION

    @property
    def locks(self) -> Locks:
        """What it locks."""
        return _of_channel(self.channel, ChannelPolicy() if self.new else None)

    def send(self, connection: Connection) -> list[ReceiptUpdate]:
        """Do it."""
        if self.paused:
            database.pause(connection, self.target, self.channel, new=self.new)
        else:
            database.resume(connection, self.target, self.channel, notify=self.target.notify)
        return []


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete the undelivered messages of a channel."""

    target: Target
    channel: str
    receipt: PurgeReceipt

    phase: ClassVar[int] = CONFIGURATION

    @property
    def locks(self) -> Locks:
        """What it locks."""
        return _of_channel(self.channel)

    def send(self, connection: Connection) -> list[ReceiptUpdate]:
        """Do it."""
        doing = f"purge channel {self.channel!r} of queue {self.target.queue!r}"
        purged = self.target.call("fq_purge_channel", doing, channel=self.channel).value(connection)

        def update() -> None:
            self.receipt.purged = purged

        return [update]


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
    def phase(self) -> int:
        """Its phase."""
        return MESSAGES

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

    phase: ClassVar[int] = MESSAGES
    verb: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class SetSchedule:
    """Make a schedule, or change the one of its name."""

    target: Target
    definition: ScheduleDefinition

    phase: ClassVar[int] = SCHEDULES

    @property
    def channel(self) -> str:
        """The channel that it belongs to."""
        return self.definition.message.message.channel

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    def send(self, connection: Connection) -> None:
        """Do it."""
        database.set_schedule(connection, self.target, self.definition)


@dataclass(frozen=True, slots=True)
class RemoveSchedule:
    """Remove a schedule, if it is there."""

    target: Target
    channel: str
    name: str

    phase: ClassVar[int] = SCHEDULES

    def send(self, connection: Connection) -> None:
        """Do it."""
        doing = f"remove schedule {self.name!r} of channel {self.channel!r} of queue {self.target.queue!r}"
        self.target.call("fq_remove_schedule", doing, channel=self.channel, name=self.name).rows(connection)


@dataclass(frozen=True, slots=True)
class PauseSchedule:
    """Stop the slots of a schedule, or go on with them."""

    target: Target
    channel: str
    name: str
    paused: bool

    phase: ClassVar[int] = SCHEDULES

    def send(self, connection: Connection) -> None:
        """Do it."""
        database.pause_schedule(connection, self.target, self.channel, self.name, paused=self.paused)


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

    phase: ClassVar[int] = GROUPS


MessageChange = Settle | Cancel
Configuration = Configure | ConfigureLimit | ConfigurePlan | Limit | Pause | Purge | SetQueue
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
