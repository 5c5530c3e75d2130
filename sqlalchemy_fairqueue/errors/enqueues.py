"""Errors of messages that are not added."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors.base import FairQueueError, FairQueueWarning


class DuplicateMessage(FairQueueError):
    """Another message of the channel holds the key, and the enqueue asked to raise (``on_duplicate="raise"``).

    Of a key with a period (``unique_for``) that message may have ended.

    Or the transaction was asked to cancel the message that holds it, and then to enqueue under its key, with any
    ``on_duplicate``: enqueues are sent before cancels, so that nothing would be left.

    The message was not added. A call on a connection leaves its transaction usable; a COMMIT fails whole.

    Attributes:
        channel: The channel.
        key: The key.
        message_id: The message that holds it.
        cancelled: Whether the transaction cancels that message.

    Example:
        >>> message_id = queue.enqueue(engine, channel="a", payload=1, key="report").message_id
        >>> try:
        ...     with Session(engine) as session, session.begin():
        ...         receipt = queue.enqueue(session, channel="a", payload=2, key="report", on_duplicate="raise")
        ... except DuplicateMessage as error:
        ...     print(error.message_id == message_id)
        True
    """

    def __init__(self, channel: str, key: str, message_id: int, cancelled: bool = False) -> None:  # noqa: FBT001, FBT002 - pickled by position
        super().__init__(channel, key, message_id, cancelled)
        self.channel = channel
        self.key = key
        self.message_id = message_id
        self.cancelled = cancelled

    def __str__(self) -> str:
        """The key, its channel, and its holder."""
        if self.cancelled:
            return (
                f"key {self.key!r} stands in channel {self.channel!r} until message {self.message_id} is cancelled, "
                "which this transaction does after its enqueues; cancel in a transaction of its own first, or enqueue "
                "with on_duplicate='replace' and do not cancel"
            )
        return (
            f"key {self.key!r} stands already in channel {self.channel!r}: message {self.message_id} holds it until it "
            "is completed or dead, or for its unique_for; enqueue with on_duplicate='skip' to leave it, or 'replace' "
            "to rewrite it while it waits"
        )


class ChannelFull(FairQueueError, codes=("QF005",)):
    """A channel has as many undelivered messages as its ``max_backlog`` allows, and its policy is to raise.

    The message was not added. A call on a connection leaves its transaction usable; a COMMIT fails whole.

    Attributes:
        channel: The channel, as far as it is known.
        max_backlog: The bound, as far as it is known.

    Example:
        >>> queue.configure_channel(engine, "customer-7", max_backlog=1)
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> try:
        ...     receipt = queue.enqueue(engine, channel="customer-7", payload=2)
        ... except ChannelFull as error:
        ...     print(error.channel)
        customer-7
    """

    def __init__(self, problem: str, channel: str | None = None, max_backlog: int | None = None) -> None:
        super().__init__(problem, channel, max_backlog)
        self.channel = channel
        self.max_backlog = max_backlog


class OutsideGroupWarning(FairQueueWarning):
    """A message is enqueued on a session within the block of a group of its queue, and is no member of the group.

    Example:
        >>> with warnings.catch_warnings(record=True, action="always") as found, Session(engine) as session:
        ...     with queue.group(session) as group:
        ...         receipt = queue.enqueue(session, channel="customer-7", payload=1)
        >>> [warning.category.__name__ for warning in found]
        ['OutsideGroupWarning']
    """
