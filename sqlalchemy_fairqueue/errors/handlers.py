"""Errors and warnings of deliveries, their handlers, and the workers that call these."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors.base import FairQueueError, FairQueueWarning

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class LeaseLost(FairQueueError):
    """A delivery is no longer its holder's: the lease expired and the message was taken back, or it was settled before.

    Stop working on the message: another consumer may hold it. For the lost messages nothing was changed.

    Attributes:
        message_ids: The lost messages, ascending.
        lease_id: The lease they were held under (of the first, if they differ).
        expired_at: When that lease ended, as the delivery knew it.
        holder: The consumer that holds the first of them now, if any.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine)
        >>> queue.complete(engine, delivery)
        >>> try:
        ...     queue.complete(engine, delivery)
        ... except LeaseLost:
        ...     print("somebody settled it before")
        somebody settled it before
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

    Example:
        >>> late = make_context(make_delivery(queue, 1, kind="parse"), timed_out=True)
        >>> try:
        ...     late.check()
        ... except HandlerTimeout as error:
        ...     print(error)
        the handler of message 1 took longer than kind 'parse' may ...; end sooner, or give the kind more time by ...
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

    Example:
        >>> print(HandlerCrashed(17, "parse", exitcode=-9))  # as the last error of the message says it
        the process of the handler of message 17, kind 'parse', was killed by signal 9 (SIGKILL) before the handler ...
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

    Example:
        >>> cancelled = make_context(make_delivery(queue, 1), cancelled=True)
        >>> try:
        ...     cancelled.check()
        ... except MessageCancelled as error:
        ...     print(error)
        message 1 was cancelled; stop working on it
    """

    def __init__(self, message_id: int) -> None:
        super().__init__(message_id)
        self.message_id = message_id

    def __str__(self) -> str:
        """The message."""
        return f"message {self.message_id} was cancelled; stop working on it"


class WorkerError(FairQueueError):
    """A worker cannot do what it was asked to: a kind without a handler, a handler it cannot call, a second start.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> None: ...
        >>> with Worker(engine, queue, concurrency=1) as worker:
        ...     try:
        ...         worker.run()
        ...     except WorkerError as error:
        ...         print(error)
        worker ... runs already; stop it first, or make another
    """


class StartError(WorkerError):
    """A function that a queue declared with ``on_start`` failed, so that the worker did not start. The cause is kept.

    Attributes:
        queue: The queue.
        function: The name of the function.
        problem: What it raised, in words.

    Example:
        >>> @queue.on_start
        ... def mailer() -> object:
        ...     raise ConnectionError("mail.example does not answer")
        >>> @queue.handler("mail")
        ... def mail(delivery: Delivery) -> None: ...
        >>> try:
        ...     Worker(engine, queue, concurrency=1).run(drain=True)
        ... except StartError as error:
        ...     print(error.function, error.problem)
        mailer ConnectionError: mail.example does not answer
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


class HandlerTransactionWarning(FairQueueWarning):
    """A handler commits the session that the worker gave it, so that its effects may happen more than once.

    Example:
        >>> warnings.filterwarnings("error", category=HandlerTransactionWarning)  # such an attempt fails
    """


class HandlerWaitWarning(FairQueueWarning):
    """A handler waits for the result of another message, and keeps its place in the worker meanwhile.

    Example:
        >>> warnings.filterwarnings("error", category=HandlerWaitWarning)  # such an attempt fails
    """


class UnhandledKindWarning(FairQueueWarning):
    """A message is enqueued whose kind has no handler, by a Queue object that has handlers for other kinds.

    Example:
        >>> @queue.handler("parse")
        ... def parse(delivery: Delivery) -> None: ...
        >>> with warnings.catch_warnings(record=True, action="always") as found:
        ...     receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="prase")
        >>> [warning.category.__name__ for warning in found]
        ['UnhandledKindWarning']
    """
