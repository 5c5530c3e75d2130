"""Errors and warnings of this package.

Each one says what happened, with the values, then what to do. A class names the SQLSTATE codes that stand for it, by
which ``database`` turns what the driver raises into the class. This module does not know how a statement is sent.
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

__all__ = [
    "AutocommitError",
    "ChannelFull",
    "DuplicateMessage",
    "FairQueueError",
    "FairQueueWarning",
    "HandlerCrashed",
    "HandlerTimeout",
    "HandlerTransactionWarning",
    "HandlerWaitWarning",
    "InvalidArgument",
    "IsolationError",
    "LeaseLost",
    "LockOrderError",
    "MessageCancelled",
    "MessageFailed",
    "NotGranted",
    "OutsideGroupWarning",
    "PayloadError",
    "ResultCancelled",
    "ResultError",
    "ResultNotKept",
    "ResultNotReady",
    "SchemaMismatch",
    "StartError",
    "UnhandledKindWarning",
    "UnknownChannel",
    "UnknownGroup",
    "UnknownMessage",
    "UnknownSchedule",
    "UnsentWork",
    "WorkerError",
    "migration_refusal",
]


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
        """Keep the attributes of a subclass as arguments too, by which it is pickled."""
        self.args = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        """The problem: data may follow it in ``args``."""
        return str(self.args[0]) if self.args else ""

    def __init_subclass__(cls, codes: tuple[str, ...] = (), **kwargs: Any) -> None:
        """Register the SQLSTATE codes that stand for the class."""
        super().__init_subclass__(**kwargs)
        for code in codes:
            FairQueueError.of_sqlstate[code] = cls


class FairQueueWarning(UserWarning):
    """Base of every warning of this package.

    Example:
        >>> warnings.filterwarnings("error", category=FairQueueWarning)  # in tests: each is an error
    """


class InvalidArgument(FairQueueError, ValueError, codes=("QF001",)):
    """An argument has a value that cannot be kept.

    Example:
        >>> try:
        ...     Rate(0)
        ... except InvalidArgument as error:
        ...     print(error)
        the count of a rate is 0; give a number above 0, such as 50
    """


@dataclass(eq=False, repr=False)
class PayloadError(FairQueueError, ValueError, codes=("QF011",)):
    """A payload cannot be encoded, its content is too long, or a stored content cannot be decoded.

    Attributes:
        path: Where in the payload, like ``$.pages[3].size``; ``$`` is the payload itself.

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
        """The problem, with the path."""
        return f"payload at {self.path}: {self.problem}"


class SchemaMismatch(FairQueueError, codes=("QF004", "42883", "42P01", "3F000", "42703")):
    """The queue is not installed in the schema that was named, or in a version that this library cannot use.

    Example:
        >>> try:
        ...     Queue("documents", schema="elsewhere").stats(engine)
        ... except SchemaMismatch as error:
        ...     print(error)
        fairqueue is not installed in schema 'elsewhere'; put op.create_fairqueue(version=1, schema='elsewhere') ...
    """


class NotGranted(FairQueueError, codes=("QF007",)):
    """A call is outside of the queues or channels that the role's grants are bound to. Nothing was changed."""


@dataclass(eq=False, repr=False)
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

    channel: str
    key: str
    message_id: int
    cancelled: bool = False

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


@dataclass(eq=False, repr=False)
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

    problem: str
    channel: str | None = None
    max_backlog: int | None = None


class OutsideGroupWarning(FairQueueWarning):
    """A message is enqueued on a session within the block of a group of its queue, and is no member of the group.

    Example:
        >>> with warnings.catch_warnings(record=True, action="always") as found, Session(engine) as session:
        ...     with queue.group(session) as group:
        ...         receipt = queue.enqueue(session, channel="customer-7", payload=1)
        >>> [warning.category.__name__ for warning in found]
        ['OutsideGroupWarning']
    """


@dataclass(eq=False, repr=False)
class LockOrderError(FairQueueError):
    """An enqueue that takes effect at once breaks the lock order. Nothing was sent: the transaction is usable.

    Attributes:
        sent: What the transaction has sent before: (schema, queue, channel, key), or "completion".
        refused: The enqueue, which sorts before what was sent already.

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
    """Queue work was asked of a connection in AUTOCOMMIT, where it could not be atomic with the business writes.

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
    """A dequeue, a limit on a whole queue or a migration was asked for in a transaction that it cannot be done in.

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
    """Queue work of a transaction that cannot be sent in it any more.

    There are two ways to get here. An earlier commit failed while it sent the work: only a rollback is possible then.
    Or the call came when the transaction had already been committed, prepared or rolled back: from a hook that runs so
    late, or after a failed flush whose error was caught, and is the cause of this one. Nothing was recorded.

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

    problem: str
    queue: str | None = None
    channel: str | None = None


@dataclass(eq=False, repr=False)
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

    problem: str
    queue: str | None = None
    channel: str | None = None
    schedule: str | None = None


@dataclass(eq=False, repr=False)
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

    problem: str
    queue: str | None = None
    group_id: UUID | None = None


@dataclass(eq=False, repr=False)
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

    message_ids: tuple[int, ...]
    lease_id: int
    expired_at: datetime | None = None
    holder: str | None = None

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


@dataclass(eq=False, repr=False)
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

    message_id: int
    kind: str
    timeout: timedelta | None = None

    def __str__(self) -> str:
        """The message, its kind, and the timeout."""
        timeout = "" if self.timeout is None else f" (timeout {self.timeout})"
        return (
            f"the handler of message {self.message_id} took longer than kind {self.kind!r} may{timeout}; "
            "end sooner, or give the kind more time by handler(timeout=...)"
        )


@dataclass(eq=False, repr=False)
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

    message_id: int
    kind: str
    exitcode: int | None

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


@dataclass(eq=False, repr=False)
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

    message_id: int

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


@dataclass(eq=False, repr=False)
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

    queue: str
    function: str
    problem: str

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


@dataclass(eq=False, repr=False)
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

    message_id: int
    timeout: timedelta | None = None

    def __str__(self) -> str:
        """The message, and the time of the wait."""
        if self.timeout is None:
            return f"message {self.message_id} has not ended; ask again later, or wait by result(..., timeout=...)"
        return f"message {self.message_id} has not ended within {self.timeout}; ask again later, or wait longer"


@dataclass(eq=False, repr=False)
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

    message_id: int
    reason: str
    error: str | None = None

    def __str__(self) -> str:
        """The message, the reason, and the last line of the error."""
        line = last_line(self.error)
        last = f" ({line[:500]})" if line else ""
        return (
            f"message {self.message_id} failed: {self.reason}{last}; correct the cause, then "
            "queue.dead_letters.redrive brings it back"
        )


@dataclass(eq=False, repr=False)
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

    message_id: int

    def __str__(self) -> str:
        """The message."""
        return f"message {self.message_id} was cancelled and has no result; enqueue it anew if it is needed"


@dataclass(eq=False, repr=False)
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

    message_id: int
    problem: str

    def __str__(self) -> str:
        """The message, and the reason."""
        return f"message {self.message_id} has ended, and no result of it is kept: {self.problem}"


@dataclass(eq=False, repr=False)
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

    message_id: int
    queue: str

    def __str__(self) -> str:
        """The id, and the queue."""
        return f"queue {self.queue!r} never had a message {self.message_id}; correct the id, or ask the message's queue"


def migration_refusal(error: DBAPIError, doing: str) -> FairQueueError | None:
    """Return the error for what a guard, or a read-only transaction, refused; None if it was anything else."""
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
