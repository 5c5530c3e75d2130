"""Errors and warnings of this package.

Each message says what happened, with the values, and then what to do. A class lists its SQLSTATE codes, by which
``database`` converts driver errors to the class.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from signal import Signals
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy_fairqueue.texts import last_line

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy.exc import DBAPIError


class FairQueueError(Exception):
    """Base of every error of this package.

    Attributes:
        of_sqlstate: The class for each SQLSTATE that has one.

    Example:
        >>> try:
        ...     queue.pause(engine, "custmer-7")
        ... except FairQueueError as error:
        ...     print(type(error).__name__)
        UnknownChannel
    """

    of_sqlstate: ClassVar[dict[str, type[FairQueueError]]] = {}

    def __post_init__(self) -> None:
        """Keep the attributes of a subclass in ``args`` too, so that it can be pickled."""
        self.args = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __init_subclass__(cls, codes: tuple[str, ...] = (), **kwargs: Any) -> None:
        """Register the class for its SQLSTATE codes."""
        super().__init_subclass__(**kwargs)
        for code in codes:
            FairQueueError.of_sqlstate[code] = cls


class FairQueueWarning(UserWarning):
    """Base of every warning of this package.

    Example:
        >>> warnings.filterwarnings("error", category=FairQueueWarning)  # in tests: each is an error
    """


class InvalidArgument(FairQueueError, ValueError, codes=("QF001",)):
    """An argument is not allowed.

    Example:
        >>> try:
        ...     Rate(0)
        ... except InvalidArgument as error:
        ...     print(error)
        the count of a rate is 0; give a number above 0, such as 50
    """


@dataclass(eq=False, repr=False)
class PayloadError(FairQueueError, ValueError, codes=("QF011",)):
    """A payload cannot be encoded or is too long, or a stored content cannot be decoded.

    Attributes:
        path: The place in the payload, like ``$.pages[3].size``; ``$`` is the payload itself.

    Example:
        >>> try:
        ...     queue.enqueue(engine, channel="customer-7", payload={"pages": [{"at": datetime.now(UTC)}]})
        ... except PayloadError as error:
        ...     print(error.path)
        $.pages[0].at
    """

    problem: str
    path: str = "$"

    def __str__(self) -> str:
        return f"payload at {self.path}: {self.problem}"


class SchemaMismatch(FairQueueError, codes=("QF004", "42883", "42P01", "3F000", "42703")):
    """The queue is not installed in this schema, or in a version that this library cannot use.

    Example:
        >>> try:
        ...     Queue("documents", schema="elsewhere").stats(engine)
        ... except SchemaMismatch as error:
        ...     print(error)
        fairqueue is not installed in schema 'elsewhere'; put op.create_fairqueue(version=1, schema='elsewhere') ...
    """


class NotGranted(FairQueueError, codes=("QF007",)):
    """A call is outside of the queues or channels that the role was granted. Nothing was changed."""


@dataclass(eq=False, repr=False)
class DuplicateMessage(FairQueueError):
    """Another message of the channel holds the key, and ``on_duplicate`` is "raise".

    If the key has a period (``unique_for``), that message may have ended.

    The error also occurs with any ``on_duplicate`` if the transaction first cancels the message and then enqueues under
    its key: enqueues are sent before cancels, so neither message would remain.

    The message was not added. The transaction of a connection stays usable; a COMMIT fails as a whole.

    Attributes:
        message_id: The message that holds the key.
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

    channel: str
    key: str
    message_id: int
    cancelled: bool = False

    def __str__(self) -> str:
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


@dataclass(eq=False, repr=False)
class ChannelFull(FairQueueError, codes=("QF005",)):
    """A channel has as many undelivered messages as its ``max_backlog`` allows, and its policy says "raise".

    The message was not added. The transaction of a connection stays usable; a COMMIT fails as a whole.

    Attributes:
        channel: None if it is unknown, and so is max_backlog.

    Example:
        >>> queue.configure_channel(engine, "customer-7", max_backlog=1)
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> try:
        ...     receipt = queue.enqueue(engine, channel="customer-7", payload=2)
        ... except ChannelFull as error:
        ...     print(error.channel)
        customer-7
    """

    problem: str
    channel: str | None = None
    max_backlog: int | None = None


class OutsideGroupWarning(FairQueueWarning):
    """A message is enqueued within the block of a group of its queue, but not into the group.

    Example:
        >>> with warnings.catch_warnings(record=True, action="always") as found, Session(engine) as session:
        ...     with queue.group(session) as group:
        ...         receipt = queue.enqueue(session, channel="customer-7", payload=1)
        >>> [warning.category.__name__ for warning in found]
        ['OutsideGroupWarning']
    """


@dataclass(eq=False, repr=False)
class LockOrderError(FairQueueError):
    """An enqueue that is sent at once breaks the lock order. Nothing was sent; the transaction is usable.

    Attributes:
        sent: What the transaction has sent before: (schema, queue, channel, key), or "completion".
        refused: The enqueue, which sorts before that.

    Example:
        >>> with Session(engine) as session:
        ...     message_id = queue.enqueue(session.connection(), channel="b", payload=1, key="invoice-12").message_id
        ...     try:
        ...         receipt = queue.enqueue(session.connection(), channel="a", payload=1, key="invoice-12")
        ...     except LockOrderError as error:
        ...         print(error.refused[2:])
        ('a', 'invoice-12')
    """

    problem: str
    sent: object = None
    refused: object = None


class AutocommitError(FairQueueError):
    """A connection is in AUTOCOMMIT, so queue work would not be atomic with the business writes.

    Example:
        >>> autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        >>> try:
        ...     with Session(autocommit) as session, session.begin():
        ...         receipt = queue.enqueue(session, channel="customer-7", payload=1)
        ... except AutocommitError as error:
        ...     print(error)
        the connection to ... is in AUTOCOMMIT, where queue work would not be atomic with the business writes; ...
    """


class IsolationError(FairQueueError, codes=("QF003",)):
    """A dequeue, a limit on a whole queue or a migration needs another kind of transaction.

    All three need READ COMMITTED; a migration also needs a transaction that may write.

    Example:
        >>> strict = engine.execution_options(isolation_level="SERIALIZABLE")
        >>> with strict.connect() as connection:
        ...     try:
        ...         queue.configure(connection, max_concurrency=20)
        ...     except IsolationError as error:
        ...         print(error)
        cannot limit queue ...: fq_limit_queue runs in a serializable transaction; run it in a READ COMMITTED ...
    """


class UnsentWork(FairQueueError):
    """Queue work can no longer be sent in this transaction, and was not recorded.

    Either an earlier commit failed while sending the work; then only a rollback is possible. Or the transaction had
    already been committed, prepared or rolled back: the call came from a late hook, or after a failed flush whose error
    was caught, and is the cause here.

    Example:
        >>> with Session(engine) as session:
        ...     receipt = queue.enqueue(session.connection(), channel="customer-7", payload=1)
        ...     event.listen(session, "after_commit", lambda session: queue.pause(session, "customer-7"))
        ...     try:
        ...         session.commit()
        ...     except UnsentWork as error:
        ...         print(error)
        the transaction was committed or prepared already, so no queue work can be added to it; ...
    """


@dataclass(eq=False, repr=False)
class UnknownChannel(FairQueueError, codes=("QF008",)):
    """The channel to pause or resume does not exist: its name is mistyped, or it has had no message yet.

    On a Connection or Engine nothing was changed; a COMMIT fails as a whole.

    Example:
        >>> try:
        ...     queue.pause(engine, "custmer-7")
        ... except UnknownChannel as error:
        ...     print(error.channel)
        custmer-7
    """

    problem: str
    queue: str | None = None
    channel: str | None = None


@dataclass(eq=False, repr=False)
class UnknownSchedule(FairQueueError, codes=("QF009",)):
    """The schedule to pause, resume or run does not exist: its name or channel is mistyped.

    On a Connection or Engine nothing was changed; a COMMIT fails as a whole.

    Attributes:
        schedule: Its name.

    Example:
        >>> try:
        ...     queue.schedules.run(engine, "nihgtly", channel="customer-7")
        ... except UnknownSchedule as error:
        ...     print(error.schedule)
        nihgtly
    """

    problem: str
    queue: str | None = None
    channel: str | None = None
    schedule: str | None = None


@dataclass(eq=False, repr=False)
class UnknownGroup(FairQueueError):
    """A group does not exist, or takes no members from here.

    Only the transaction that creates a group and the handlers of its members can add members. A COMMIT fails as a
    whole.

    Example:
        >>> try:
        ...     queue.groups.status(engine, "0b4c2a5e-6a6e-4c1c-9b9e-0d3e1f3a7c11")
        ... except UnknownGroup as error:
        ...     print(error.group_id)
        0b4c2a5e-6a6e-4c1c-9b9e-0d3e1f3a7c11
    """

    problem: str
    queue: str | None = None
    group_id: UUID | None = None


@dataclass(eq=False, repr=False)
class LeaseLost(FairQueueError):
    """The caller does not hold a delivery any more: its lease expired, or it was settled before.

    Stop working on the message: another consumer may hold it. Nothing was changed for the lost messages.

    Attributes:
        message_ids: The lost messages, ascending.
        lease_id: Their lease; the first one if they differ.
        expired_at: The end of that lease, as the delivery knew it.
        holder: The consumer that holds the first of them now, or None.

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

    message_ids: tuple[int, ...]
    lease_id: int
    expired_at: datetime | None = None
    holder: str | None = None

    def __str__(self) -> str:
        first, *others = self.message_ids
        which = f"message {first}" + (f" and {len(others)} more" if others else "")
        until = f" (it was good until {self.expired_at:%H:%M:%S})" if self.expired_at else ""
        now = (
            f"consumer {self.holder!r} holds the message now"
            if self.holder
            else "the message was taken back, settled or delivered again since"
        )
        return f"lease {self.lease_id} on {which} was lost{until}: {now}; stop working on it"


@dataclass(eq=False, repr=False)
class HandlerTimeout(FairQueueError):
    """A handler exceeded the timeout of its kind; its attempt has failed.

    Attributes:
        timeout: The timeout of the kind.

    Example:
        >>> late = make_context(make_delivery(queue, 1, kind="parse"), timed_out=True)
        >>> try:
        ...     late.check()
        ... except HandlerTimeout as error:
        ...     print(error)
        the handler of message 1 took longer than kind 'parse' may ...; end sooner, or give the kind more time by ...
    """

    message_id: int
    kind: str
    timeout: timedelta | None = None

    def __str__(self) -> str:
        timeout = "" if self.timeout is None else f" (timeout {self.timeout})"
        return (
            f"the handler of message {self.message_id} took longer than kind {self.kind!r} may{timeout}; "
            "end sooner, or give the kind more time by handler(timeout=...)"
        )


@dataclass(eq=False, repr=False)
class HandlerCrashed(FairQueueError):
    """The child process of a handler (``isolation="process"``) ended before the handler; its attempt failed.

    Attributes:
        exitcode: The exit status, or the negative number of the signal that killed it; None if unknown.

    Example:
        >>> print(HandlerCrashed(17, "parse", exitcode=-9))  # as the last error of the message says it
        the process of the handler of message 17, kind 'parse', was killed by signal 9 (SIGKILL) before the handler ...
    """

    message_id: int
    kind: str
    exitcode: int | None

    def __str__(self) -> str:
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


@dataclass(eq=False, repr=False)
class MessageCancelled(FairQueueError):
    """A message was withdrawn while its handler works on it. Stop: the message is gone.

    Example:
        >>> cancelled = make_context(make_delivery(queue, 1), cancelled=True)
        >>> try:
        ...     cancelled.check()
        ... except MessageCancelled as error:
        ...     print(error)
        message 1 was cancelled; stop working on it
    """

    message_id: int

    def __str__(self) -> str:
        return f"message {self.message_id} was cancelled; stop working on it"


class WorkerError(FairQueueError):
    """A worker cannot do as asked: it runs already, lacks a handler, or cannot call a handler.

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


@dataclass(eq=False, repr=False)
class StartError(WorkerError):
    """An ``on_start`` function failed, so the worker did not start. The cause is kept.

    Attributes:
        queue: The queue that declared it.
        function: Its name.
        problem: What it raised, as text.

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

    queue: str
    function: str
    problem: str

    def __str__(self) -> str:
        return (
            f"on_start function {self.function!r} of queue {self.queue!r} failed, and the worker did not start: "
            f"{self.problem}; correct it and start again"
        )


class HandlerTransactionWarning(FairQueueWarning):
    """A handler commits the worker's session, so that its effects may happen more than once.

    Example:
        >>> warnings.filterwarnings("error", category=HandlerTransactionWarning)  # such an attempt fails
    """


class HandlerWaitWarning(FairQueueWarning):
    """A handler waits for the result of another message, and occupies its place in the worker meanwhile.

    Example:
        >>> warnings.filterwarnings("error", category=HandlerWaitWarning)  # such an attempt fails
    """


class UnhandledKindWarning(FairQueueWarning):
    """The Queue object has handlers, but none for the kind of an enqueued message.

    Example:
        >>> @queue.handler("parse")
        ... def parse(delivery: Delivery) -> None: ...
        >>> with warnings.catch_warnings(record=True, action="always") as found:
        ...     receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="prase")
        >>> [warning.category.__name__ for warning in found]
        ['UnhandledKindWarning']
    """


class ResultError(FairQueueError):
    """A message has no result to return. Subclasses say how the message ended.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> try:
        ...     queue.result(engine, message_id)
        ... except ResultError as error:
        ...     print(type(error).__name__)
        ResultNotReady
    """

    message_id: int


@dataclass(eq=False, repr=False)
class ResultNotReady(ResultError, TimeoutError):
    """A message has not ended, or not within the timeout. It goes on; ask again later.

    Attributes:
        timeout: None if the call did not wait.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> try:
        ...     queue.result(engine, message_id)
        ... except ResultNotReady as error:
        ...     print(error)
        message ... has not ended; ask again later, or wait by result(..., timeout=...)
    """

    message_id: int
    timeout: timedelta | None = None

    def __str__(self) -> str:
        if self.timeout is None:
            return f"message {self.message_id} has not ended; ask again later, or wait by result(..., timeout=...)"
        return f"message {self.message_id} has not ended within {self.timeout}; ask again later, or wait longer"


@dataclass(eq=False, repr=False)
class MessageFailed(ResultError):
    """The message whose result was asked for is a dead letter.

    Attributes:
        reason: Why it is not tried again.
        error: Its last error with the traceback, or None.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.bury(engine, queue.dequeue(engine), reason="there is no such number")
        >>> try:
        ...     queue.result(engine, message_id)
        ... except MessageFailed as error:
        ...     print(error.reason)
        there is no such number
    """

    message_id: int
    reason: str
    error: str | None = None

    def __str__(self) -> str:
        line = last_line(self.error)
        last = f" ({line[:500]})" if line else ""
        return (
            f"message {self.message_id} failed: {self.reason}{last}; correct the cause, then "
            "queue.dead_letters.redrive brings it back"
        )


@dataclass(eq=False, repr=False)
class ResultCancelled(ResultError):
    """The message whose result was asked for was cancelled.

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

    message_id: int

    def __str__(self) -> str:
        return f"message {self.message_id} was cancelled and has no result; enqueue it anew if it is needed"


@dataclass(eq=False, repr=False)
class ResultNotKept(ResultError):
    """The message has ended, but its result is not kept, or not any more.

    Attributes:
        problem: Why, as far as it is known.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> try:
        ...     queue.result(engine, message_id)
        ... except ResultNotKept as error:
        ...     print(error.problem)
        it expired and was deleted, or queue ... kept no results when the message was delivered: see queue.configure(...
    """

    message_id: int
    problem: str

    def __str__(self) -> str:
        return f"message {self.message_id} has ended, and no result of it is kept: {self.problem}"


@dataclass(eq=False, repr=False)
class UnknownMessage(ResultError):
    """The queue never had the message whose result was asked for: the id or the queue is wrong.

    Example:
        >>> try:
        ...     queue.result(engine, 1_000_000)
        ... except UnknownMessage as error:
        ...     print(error)
        queue ... never had a message 1000000; correct the id, or ask the message's queue
    """

    message_id: int
    queue: str

    def __str__(self) -> str:
        return f"queue {self.queue!r} never had a message {self.message_id}; correct the id, or ask the message's queue"


def migration_refusal(error: DBAPIError, doing: str) -> FairQueueError | None:
    """Return the error for a migration that a guard or a read-only transaction refused; None for other errors."""
    original = error.orig
    code = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    said = getattr(getattr(original, "diag", None), "message_primary", None) or str(original)
    match code:
        case "QF003":
            return IsolationError(f"{doing}: {said}")
        case "QF004":
            return SchemaMismatch(f"{doing}: {said}")
        case "25006":
            return IsolationError(
                f"{doing}: {said}; connect to the primary, and let the transaction write: leave out "
                "postgresql_readonly and default_transaction_read_only"
            )
        case _:
            return None


__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - what is defined here
    name for name, value in globals().items() if getattr(value, "__module__", "") == __name__
]
