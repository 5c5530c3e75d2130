"""Errors of this package.

Each one says what happened, with the values, then what to do. A class names the SQLSTATE codes that stand for it, by
which ``database`` turns what the driver raises into the class. This module must not know how a statement is sent.
"""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID


_MOST = 4_000


def said(error: BaseException) -> str:
    """The text of any exception, on one line, cut after some thousand characters. It never raises.

    For a statement that failed it is the server's message, without the parameters.
    """
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    try:
        text = str(error)
        said = " ".join(text[:_MOST].split())
        return said if len(text) <= _MOST else f"{said} ... ({len(text):,} characters)"
    except BaseException as again:  # noqa: BLE001 - an exception's own __str__ may do anything
        return f"(its text cannot be had: __str__ raises {type(again).__name__})"


def clean(text: str) -> str:
    r"""The text with everything that a terminal does not show, or obeys, written as an escape: ``\n``, ``\x1b``."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


class FairQueueError(Exception):
    """Base of every error of this package.

    Attributes:
        of_sqlstate: The class for each SQLSTATE that has one.
    """

    of_sqlstate: ClassVar[dict[str, type[FairQueueError]]] = {}

    def __str__(self) -> str:
        """The problem: data may follow it in ``args``."""
        return str(self.args[0]) if self.args else ""

    def __init_subclass__(cls, codes: tuple[str, ...] = (), **kwargs: Any) -> None:
        """Register the SQLSTATE codes that stand for the class."""
        super().__init_subclass__(**kwargs)
        for code in codes:
            FairQueueError.of_sqlstate[code] = cls


class InvalidArgument(FairQueueError, ValueError, codes=("QF001",)):
    """An argument has a value that cannot be kept."""


class PayloadError(FairQueueError, ValueError):
    """A payload cannot be encoded, or a stored content cannot be decoded.

    Attributes:
        path: Where in the payload, like ``$.pages[3].size``; ``$`` is the payload itself.
    """

    def __init__(self, problem: str, path: str = "$") -> None:
        super().__init__(problem, path)
        self.path = path

    def __str__(self) -> str:
        """The problem, with the path."""
        return f"payload at {self.path}: {self.args[0]}"


class LockOrderError(FairQueueError):
    """An enqueue that takes effect at once came out of the lock order. Nothing was sent: the transaction is usable.

    Attributes:
        sent: What the transaction has sent before: (schema, queue, channel, key), or "completion".
        refused: What came after it although it sorts before it.
    """

    def __init__(self, problem: str, sent: object = None, refused: object = None) -> None:
        super().__init__(problem, sent, refused)
        self.sent = sent
        self.refused = refused


class AutocommitError(FairQueueError):
    """Queue work was asked of a connection in AUTOCOMMIT, where it could not be atomic with the business writes."""


class IsolationError(FairQueueError, codes=("QF003",)):
    """A dequeue, or a limit on a whole queue, was asked for in a transaction that is not READ COMMITTED."""


class SchemaMismatch(FairQueueError, codes=("QF004", "42883", "42P01", "3F000", "42703")):
    """The queue is not installed in the schema that was named, or in a version that this library cannot use."""


class DuplicateMessage(FairQueueError):
    """Another message of the channel holds the key, and the enqueue asked to raise (``on_duplicate="raise"``).

    Or the transaction was asked to cancel the message that holds it, and then to enqueue under its key, with any
    ``on_duplicate``: enqueues are sent before cancels, so that nothing would be left.

    The message was not added. From ``enqueue_now`` the transaction goes on; from a COMMIT it fails whole.

    Attributes:
        channel: The channel.
        key: The key.
        message_id: The message that holds it.
        cancelled: Whether the transaction cancels that message.
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
            "is completed or dead; enqueue with on_duplicate='skip' to leave it, or 'replace' to rewrite it"
        )


class ChannelFull(FairQueueError, codes=("QF005",)):
    """A channel has as many undelivered messages as its ``max_backlog`` allows, and its policy is to raise.

    The message was not added. From ``enqueue_now`` the transaction goes on; from a COMMIT it fails whole.

    Attributes:
        channel: The channel, as far as it is known.
        max_backlog: The bound, as far as it is known.
    """

    def __init__(self, problem: str, channel: str | None = None, max_backlog: int | None = None) -> None:
        super().__init__(problem, channel, max_backlog)
        self.channel = channel
        self.max_backlog = max_backlog


class UnknownChannel(FairQueueError, codes=("QF008",)):
    """A channel was to be paused or resumed that does not exist: its name is mistyped, or it has had no message yet.

    From a call on a Connection or Engine nothing was changed; from a COMMIT it fails whole.

    Attributes:
        queue: The queue.
        channel: The channel that it does not have.
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
    """

    def __init__(self, problem: str, queue: str | None = None, group_id: UUID | None = None) -> None:
        super().__init__(problem, queue, group_id)
        self.queue = queue
        self.group_id = group_id


class NotGranted(FairQueueError, codes=("QF007",)):
    """A call is outside of the queues or channels that the role's grants are bound to. Nothing was changed."""


class LeaseLost(FairQueueError):
    """A delivery is no longer its holder's: the lease expired and the message was taken back, or it was settled before.

    Stop working on the message: another consumer may hold it. For the lost messages nothing was changed.

    Attributes:
        message_ids: The lost messages, ascending.
        lease_id: The lease they were held under (of the first, if they differ).
        expired_at: When that lease ended, as the delivery knew it.
        holder: The consumer that holds the first of them now, if any.
    """

    def __init__(
        self,
        message_ids: tuple[int, ...],
        lease_id: int,
        expired_at: datetime | None = None,
        holder: str | None = None,
    ) -> None:
        super().__init__(message_ids, lease_id, expired_at, holder)
        self.message_ids = message_ids
        self.lease_id = lease_id
        self.expired_at = expired_at
        self.holder = holder

    def __str__(self) -> str:
        """The lease, its messages, its expiry, and the holder now."""
        first, *others = self.message_ids
        which = f"message {first}" + (f" and {len(others)} more" if others else "")
        until = f" (it was good until {self.expired_at:%H:%M:%S})" if self.expired_at else ""
        now = (
            f"consumer {self.holder!r} holds the message now"
            if self.holder
            else "the message was taken back, settled or delivered again since"
        )
        return f"lease {self.lease_id} on {which} was lost{until}: {now}; stop working on it"


class HandlerTimeout(FairQueueError):
    """A handler took longer than its kind may; its attempt has failed.

    Attributes:
        message_id: The message.
        kind: Its kind.
        timeout: How long the handler may take.
    """

    def __init__(self, message_id: int, kind: str, timeout: timedelta | None = None) -> None:
        super().__init__(message_id, kind, timeout)
        self.message_id = message_id
        self.kind = kind
        self.timeout = timeout

    def __str__(self) -> str:
        """The message, its kind, and the timeout."""
        timeout = "" if self.timeout is None else f" (timeout {self.timeout})"
        return (
            f"the handler of message {self.message_id} took longer than kind {self.kind!r} may{timeout}; "
            "end sooner, or give the kind more time by handler(timeout=...)"
        )


class HandlerCrashed(FairQueueError):
    """The child process of a handler (``isolation="process"``) ended before the handler returned; its attempt failed.

    Attributes:
        message_id: The message.
        kind: Its kind.
        exitcode: The exit status of the process, or the negative number of the signal that killed it; None: not known.
    """

    def __init__(self, message_id: int, kind: str, exitcode: int | None) -> None:
        super().__init__(message_id, kind, exitcode)
        self.message_id = message_id
        self.kind = kind
        self.exitcode = exitcode

    def __str__(self) -> str:
        """The message, its kind, and how the process ended."""
        code = self.exitcode
        if code is None:
            how = "ended"
        elif code >= 0:
            how = f"exited with status {code}"
        else:
            names = {one.value: one.name for one in Signals}
            how = f"was killed by signal {-code} ({names.get(-code, 'without a name')})"
        return (
            f"the process of the handler of message {self.message_id}, kind {self.kind!r}, {how} before the handler "
            "returned; look at its stderr, and whether the system ran out of memory"
        )


class MessageCancelled(FairQueueError):
    """A message was withdrawn while its handler works on it. Stop working on it: the message is gone.

    Attributes:
        message_id: The message.
    """

    def __init__(self, message_id: int) -> None:
        super().__init__(message_id)
        self.message_id = message_id

    def __str__(self) -> str:
        """The message."""
        return f"message {self.message_id} was cancelled; stop working on it"


class WorkerError(FairQueueError):
    """A worker cannot do what it was asked to: a kind without a handler, a handler it cannot call, a second start."""


class StartError(WorkerError):
    """A function that a queue declared with ``on_start`` failed, so that the worker did not start. The cause is kept.

    Attributes:
        queue: The queue.
        function: The name of the function.
        problem: What it raised, in words.
    """

    def __init__(self, queue: str, function: str, problem: str) -> None:
        super().__init__(queue, function, problem)
        self.queue = queue
        self.function = function
        self.problem = problem

    def __str__(self) -> str:
        """The function, its queue, and what it raised."""
        return (
            f"on_start function {self.function!r} of queue {self.queue!r} failed, and the worker did not start: "
            f"{self.problem}; correct it and start again"
        )


class ResultError(FairQueueError):
    """A message has no result to return. Its subclasses say what became of the message.

    Attributes:
        message_id: The message.
    """

    message_id: int


class ResultNotReady(ResultError, TimeoutError):
    """A message has not ended, or not in the time that its result was waited for. It goes on: ask again later.

    Attributes:
        message_id: The message.
        timeout: How long it was waited for. None: not at all.
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
    """A message whose result was asked for is a dead letter, or in quarantine.

    Attributes:
        message_id: The message.
        reason: Why it will not be tried again.
        error: Its last error, with the traceback; or None.
    """

    def __init__(self, message_id: int, reason: str, error: str | None = None) -> None:
        super().__init__(message_id, reason, error)
        self.message_id = message_id
        self.reason = reason
        self.error = error

    def __str__(self) -> str:
        """The message, the reason, and the last line of the error."""
        last = "" if not self.error else f" ({self.error.strip().splitlines()[-1][:500]})"
        return (
            f"message {self.message_id} failed: {self.reason}{last}; correct the cause, then queue.redrive brings it "
            "back"
        )


class ResultCancelled(ResultError):
    """A message whose result was asked for was cancelled.

    Attributes:
        message_id: The message.
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
    """

    def __init__(self, message_id: int, queue: str) -> None:
        super().__init__(message_id, queue)
        self.message_id = message_id
        self.queue = queue

    def __str__(self) -> str:
        """The id, and the queue."""
        return f"queue {self.queue!r} never had a message {self.message_id}; correct the id, or ask the message's queue"


class UnsentWork(FairQueueError):
    """Queue work of a transaction that cannot be sent in it any more.

    Either an earlier commit failed while it sent the work, so that only a rollback is possible; or the work was asked
    for when the transaction had been committed, prepared or rolled back already, from a hook that runs that late or
    after a flush whose error was caught: then that error is the cause. Nothing was recorded.
    """


class FairQueueWarning(UserWarning):
    """Base of every warning of this package."""


class HandlerTransactionWarning(FairQueueWarning):
    """A handler commits the session that the worker gave it, so that its effects may happen more than once."""


class UnhandledKindWarning(FairQueueWarning):
    """A message is enqueued whose kind has no handler, by a Queue object that has handlers for other kinds."""
