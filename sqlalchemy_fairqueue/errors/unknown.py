"""Errors of names that do not exist in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors.base import FairQueueError

if TYPE_CHECKING:
    from uuid import UUID


class UnknownChannel(FairQueueError, codes=("QF008",)):
    """A channel was to be paused or resumed that does not exist: its name is mistyped, or it has had no message yet.

    From a call on a Connection or Engine nothing was changed; from a COMMIT it fails whole.

    Attributes:
        queue: The queue.
        channel: The channel that it does not have.

    Example:
        >>> try:
        ...     queue.pause(engine, "custmer-7")
        ... except UnknownChannel as error:
        ...     print(error.channel)
        custmer-7
    """

    def __init__(self, problem: str, queue: str | None = None, channel: str | None = None) -> None:
        super().__init__(problem, queue, channel)
        self.queue = queue
        self.channel = channel


class UnknownSchedule(FairQueueError, codes=("QF009",)):
    """A schedule was to be paused, resumed or run that does not exist: its name or its channel is mistyped.

    From a call on a Connection or Engine nothing was changed; from a COMMIT it fails whole.

    Attributes:
        queue: The queue.
        channel: The channel.
        schedule: The schedule that the channel does not have.

    Example:
        >>> try:
        ...     queue.schedules.run(engine, "nihgtly", channel="customer-7")
        ... except UnknownSchedule as error:
        ...     print(error.schedule)
        nihgtly
    """

    def __init__(
        self, problem: str, queue: str | None = None, channel: str | None = None, schedule: str | None = None
    ) -> None:
        super().__init__(problem, queue, channel, schedule)
        self.queue = queue
        self.channel = channel
        self.schedule = schedule


class UnknownGroup(FairQueueError):
    """A group of messages that does not exist, or that takes no members from here.

    Only the transaction that makes a group and the handlers of its members add members to it. From a COMMIT it fails
    whole.

    Attributes:
        queue: The queue.
        group_id: The group.

    Example:
        >>> try:
        ...     queue.groups.status(engine, "0b4c2a5e-6a6e-4c1c-9b9e-0d3e1f3a7c11")
        ... except UnknownGroup as error:
        ...     print(error.group_id)
        0b4c2a5e-6a6e-4c1c-9b9e-0d3e1f3a7c11
    """

    def __init__(self, problem: str, queue: str | None = None, group_id: UUID | None = None) -> None:
        super().__init__(problem, queue, group_id)
        self.queue = queue
        self.group_id = group_id
