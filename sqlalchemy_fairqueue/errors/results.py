"""Errors of results that cannot be returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors.base import FairQueueError
from sqlalchemy_fairqueue.errors.texts import last_line

if TYPE_CHECKING:
    from datetime import timedelta


class ResultError(FairQueueError):
    """A message has no result to return. Its subclasses say what became of the message.

    Attributes:
        message_id: The message.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> try:
        ...     queue.result(engine, message_id)
        ... except ResultError as error:
        ...     print(type(error).__name__)
        ResultNotReady
    """

    message_id: int


class ResultNotReady(ResultError, TimeoutError):
    """A message has not ended, or not in the time that its result was waited for. It goes on: ask again later.

    Attributes:
        message_id: The message.
        timeout: How long it was waited for. None: not at all.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> try:
        ...     queue.result(engine, message_id)
        ... except ResultNotReady as error:
        ...     print(error)
        message ... has not ended; ask again later, or wait by result(..., timeout=...)
    """

    def __init__(self, message_id: int, timeout: timedelta | None = None) -> None:
        super().__init__(message_id, timeout)
        self.message_id = message_id
        self.timeout = timeout

    def __str__(self) -> str:
        """The message, and the time of the wait."""
        if self.timeout is None:
            return f"message {self.message_id} has not ended; ask again later, or wait by result(..., timeout=...)"
        return f"message {self.message_id} has not ended within {self.timeout}; ask again later, or wait longer"


class MessageFailed(ResultError):
    """A message whose result was asked for is a dead letter.

    Attributes:
        message_id: The message.
        reason: Why it will not be tried again.
        error: Its last error, with the traceback; or None.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.bury(engine, queue.dequeue(engine), reason="there is no such number")
        >>> try:
        ...     queue.result(engine, message_id)
        ... except MessageFailed as error:
        ...     print(error.reason)
        there is no such number
    """

    def __init__(self, message_id: int, reason: str, error: str | None = None) -> None:
        super().__init__(message_id, reason, error)
        self.message_id = message_id
        self.reason = reason
        self.error = error

    def __str__(self) -> str:
        """The message, the reason, and the last line of the error."""
        line = last_line(self.error)
        last = f" ({line[:500]})" if line else ""
        return (
            f"message {self.message_id} failed: {self.reason}{last}; correct the cause, then "
            "queue.dead_letters.redrive brings it back"
        )


class ResultCancelled(ResultError):
    """A message whose result was asked for was cancelled.

    Attributes:
        message_id: The message.

    Example:
        >>> queue.configure(engine, result_retention=timedelta(hours=1))
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> outcome = queue.cancel(engine, message_id)
        >>> try:
        ...     queue.result(engine, message_id)
        ... except ResultCancelled as error:
        ...     print(error)
        message ... was cancelled and has no result; enqueue it anew if it is needed
    """

    def __init__(self, message_id: int) -> None:
        super().__init__(message_id)
        self.message_id = message_id

    def __str__(self) -> str:
        """The message."""
        return f"message {self.message_id} was cancelled and has no result; enqueue it anew if it is needed"


class ResultNotKept(ResultError):
    """A message whose result was asked for has ended, and its result is not kept, or not any more.

    Attributes:
        message_id: The message.
        problem: Why, as far as is known.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> try:
        ...     queue.result(engine, message_id)
        ... except ResultNotKept as error:
        ...     print(error.problem)
        it expired and was deleted, or queue ... kept no results when the message was delivered: see queue.configure(...
    """

    def __init__(self, message_id: int, problem: str) -> None:
        super().__init__(message_id, problem)
        self.message_id = message_id
        self.problem = problem

    def __str__(self) -> str:
        """The message, and the reason."""
        return f"message {self.message_id} has ended, and no result of it is kept: {self.problem}"


class UnknownMessage(ResultError):
    """A result was asked for of a message that the queue never had: the id or the queue is wrong.

    Attributes:
        message_id: The id.
        queue: The queue.

    Example:
        >>> try:
        ...     queue.result(engine, 1_000_000)
        ... except UnknownMessage as error:
        ...     print(error)
        queue ... never had a message 1000000; correct the id, or ask the message's queue
    """

    def __init__(self, message_id: int, queue: str) -> None:
        super().__init__(message_id, queue)
        self.message_id = message_id
        self.queue = queue

    def __str__(self) -> str:
        """The id, and the queue."""
        return f"queue {self.queue!r} never had a message {self.message_id}; correct the id, or ask the message's queue"
