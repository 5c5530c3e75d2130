"""Errors and warnings of this package.

The text of an error says what happened, with the values, and then what to do. If a class lists SQLSTATE codes, the
package ``database`` raises this class in place of a driver's error with one of these codes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from signal import Signals
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlalchemy_fairqueue.texts import exception_line

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy.exc import DBAPIError


class FairQueueError(Exception):
    """Base of every error of this package.

    Example:
        >>> try:
        ...     queue.pause(engine, "custmer-7")
        ... except FairQueueError as error:
        ...     print(type(error).__name__)
        UnknownChannel
    """

    of_sqlstate: ClassVar[dict[str, type[FairQueueError]]] = {}

    def __post_init__(self) -> None:
        # The attributes of a subclass are kept in ``args`` too, so that the error can be pickled.
        self.args = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __init_subclass__(cls, codes: tuple[str, ...] = (), **kwargs: Any) -> None:
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
        >>> Rate(0)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.InvalidArgument: the count of a rate is 0; give a number above 0, such as 50
    """


@dataclass(eq=False, repr=False)
class PayloadError(FairQueueError, ValueError, codes=("QF011",)):
    """A payload cannot be encoded or is too long, or a stored content cannot be decoded.

    ``path`` is the place in the payload, like ``$.pages[3].size``; ``$`` is the payload itself.

    Example:
        >>> queue.enqueue(engine, channel="customer-7", payload={"pages": [{"at": datetime.now(UTC)}]})
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.PayloadError: payload at $.pages[0].at: a datetime cannot be encoded as JSON; ...
    """

    problem: str
    path: str = "$"

    def __str__(self) -> str:
        return f"payload at {self.path}: {self.problem}"


class SchemaMismatch(FairQueueError, codes=("QF004", "42883", "42P01", "3F000", "42703")):
    """The schema has no installation, or one of a version that this library cannot use.

    Example:
        >>> Queue("documents", schema="elsewhere").stats(engine)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.SchemaMismatch: fairqueue is not installed in schema 'elsewhere'; ...
    """


class NotGranted(FairQueueError, codes=("QF007",)):
    """The role lacks a grant, or its grant does not include the queue or channel of a call. Nothing was changed."""


@dataclass(eq=False, repr=False)
class DuplicateMessage(FairQueueError):
    """Another message of the channel holds the key of an enqueue, and the new message was not added.

    An enqueue with ``on_duplicate="raise"`` raises this. On a connection the transaction stays usable. If a session's
    commit raises this, roll back. ``message_id`` is the other message, which may have ended if the key has a period.

    A session sends its enqueues before its cancels. So if it cancels a message and then enqueues another under the same
    key, the key is still taken. Then the commit raises this with any ``on_duplicate``, and ``cancelled`` is True. There
    is one exception: if the cancelled message is leased, an enqueue with "replace" takes the key from it.

    Example:
        >>> receipt = queue.enqueue(engine, channel="a", payload=1, key="report")
        >>> queue.enqueue(engine, channel="a", payload=2, key="report", on_duplicate="raise")
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.DuplicateMessage: key 'report' stands already in channel 'a': message ...
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

    The message was not added. If an enqueue on a connection raises this, the transaction stays usable. If
    ``schedules.run`` or a session's commit raises this, roll back. An attribute that is unknown is None.

    Example:
        >>> queue.configure_channel(engine, "customer-7", max_backlog=1)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.enqueue(engine, channel="customer-7", payload=2)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.ChannelFull: channel 'customer-7' of queue ... has reached its max_backlog ...
    """

    problem: str
    channel: str | None = None
    max_backlog: int | None = None


class OutsideGroupWarning(FairQueueWarning):
    """A message is enqueued in the ``with`` block of a group of its queue, but not added to the group.

    Example:
        >>> with warnings.catch_warnings(record=True, action="always") as found, Session(engine) as session:
        ...     with queue.group(session) as group:
        ...         receipt = queue.enqueue(session, channel="customer-7", payload=1)
        >>> [warning.category.__name__ for warning in found]
        ['OutsideGroupWarning']
    """


@dataclass(eq=False, repr=False)
class LockOrderError(FairQueueError):
    """An enqueue breaks the lock order and was not sent. Unless a session's commit raises this, no rollback is needed.

    ``refused`` is the place of the enqueue in the order: (schema, queue, channel, key). ``sent`` is the later place
    that the transaction has reached, or "completion" if it has sent a settlement, cancel, redrive or configuration.

    Example:
        >>> with engine.begin() as connection:
        ...     receipt = queue.enqueue(connection, channel="b", payload=1)
        ...     receipt = queue.enqueue(connection, channel="a", payload=1)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.LockOrderError: enqueue to channel 'a' of queue ... after channel 'b' of queue ...
    """

    problem: str
    sent: object = None
    refused: object = None


class AutocommitError(FairQueueError):
    """A connection is in AUTOCOMMIT, so queue work would not be atomic with the business writes.

    Example:
        >>> autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        >>> with Session(autocommit) as session, session.begin():
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=1)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.AutocommitError: the connection to ... is in AUTOCOMMIT, ...
    """


class IsolationError(FairQueueError, codes=("QF003",)):
    """A call needs a READ COMMITTED transaction, since it sets limits of a whole queue, cancels a group or migrates.

    A migration also needs a transaction that may write.

    Example:
        >>> with engine.execution_options(isolation_level="SERIALIZABLE").connect() as connection:
        ...     queue.configure(connection, max_concurrency=20)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.IsolationError: cannot limit queue ... in a serializable transaction; ...
    """


class UnsentWork(FairQueueError):
    """Queue work can no longer be sent in this transaction.

    A commit raises this if an earlier commit failed while it sent the work; then only a rollback is possible. A call
    that would record or send work raises this if the transaction was already committed, prepared or rolled back. A
    usual cause is a hook that makes the call too late, such as after_commit. Another cause is a flush that failed and
    rolled the transaction back, if the application has caught the flush's error. That error is then the ``__cause__``.

    Example:
        >>> with Session(engine) as session:
        ...     receipt = queue.enqueue(session.connection(), channel="customer-7", payload=1)
        ...     event.listen(session, "after_commit", lambda session: queue.pause(session, "customer-7"))
        ...     session.commit()
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.UnsentWork: the transaction was committed or prepared already, ...
    """


@dataclass(eq=False, repr=False)
class UnknownChannel(FairQueueError, codes=("QF008",)):
    """The channel to pause or resume does not exist: it was never used, or was forgotten, or its name is mistyped.

    On a Connection or Engine nothing was changed; a COMMIT that raises this commits nothing.

    Example:
        >>> queue.pause(engine, "custmer-7")
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.UnknownChannel: cannot pause channel 'custmer-7' of queue ...; correct the name, ...
    """

    problem: str
    queue: str | None = None
    channel: str | None = None


@dataclass(eq=False, repr=False)
class UnknownSchedule(FairQueueError, codes=("QF009",)):
    """The schedule to pause, resume or run does not exist: its name or channel is mistyped.

    On a Connection or Engine nothing was changed; a COMMIT that raises this commits nothing.

    Example:
        >>> queue.schedules.run(engine, "nihgtly", channel="customer-7")
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.UnknownSchedule: ...
    """

    problem: str
    queue: str | None = None
    channel: str | None = None
    schedule: str | None = None


@dataclass(eq=False, repr=False)
class UnknownGroup(FairQueueError):
    """A group does not exist, or takes no members from this caller. A COMMIT that raises this commits nothing.

    Members can be added only by the transaction that creates the group, and by the handlers of members.

    Example:
        >>> queue.groups.status(engine, "0b4c2a5e-6a6e-4c1c-9b9e-0d3e1f3a7c11")
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.UnknownGroup: queue ... has no group 0b4c2a5e-6a6e-4c1c-9b9e-0d3e1f3a7c11; ...
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
        lease_id: The lease of the first of these messages.
        expired_at: When that lease was to end according to the caller's Delivery object. Extensions are not counted.
        holder: The consumer that holds the first of these messages now; None if no holder is known.

    Example:
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> [delivery] = queue.dequeue(engine)
        >>> queue.complete(engine, delivery)
        >>> queue.complete(engine, delivery)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.LeaseLost: lease ... on message ... was lost ...; stop working on it
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

    Example:
        >>> make_context(make_delivery(queue, 1, kind="parse"), timed_out=True).check()
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.HandlerTimeout: the handler of message 1 took longer than kind 'parse' may ...
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
    """The child process of a handler (``isolation="process"``) ended before the handler returned; the attempt failed.

    ``exitcode`` is the exit status, or the negative number of the signal that killed the process; None if unknown.

    Example:
        >>> print(HandlerCrashed(17, "parse", exitcode=-9))
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
        >>> make_context(make_delivery(queue, 1), cancelled=True).check()
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.MessageCancelled: message 1 was cancelled; stop working on it
    """

    message_id: int

    def __str__(self) -> str:
        return f"message {self.message_id} was cancelled; stop working on it"


class WorkerError(FairQueueError):
    """A worker cannot do as asked: for example, it runs already, or it has a handler that it cannot call.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> None: ...
        >>> with Worker(engine, queue, concurrency=1) as worker:
        ...     worker.run()
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.WorkerError: worker ... runs already; stop it first, or make another
    """


@dataclass(eq=False, repr=False)
class StartError(WorkerError):
    """An ``on_start`` function failed, so the worker did not start. ``problem`` is the text of its exception.

    Example:
        >>> @queue.on_start
        ... def mailer() -> object:
        ...     raise ConnectionError("mail.example does not answer")
        >>> @queue.handler("mail")
        ... def mail(delivery: Delivery) -> None: ...
        >>> Worker(engine, queue).start()
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.StartError: on_start function 'mailer' of queue ... failed, ...
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
    """A handler waits for the result of another message. Meanwhile its worker can run one handler fewer.

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


@dataclass(eq=False, repr=False)
class ResultError(FairQueueError):
    """A message has no result to return. Subclasses say why.

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
    """The message has not ended, or not within the timeout. It stays in the queue; ask for its result again later.

    Example:
        >>> queue.result(engine, queue.enqueue(engine, channel="customer-7", payload=1).message_id)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.ResultNotReady: message ... has not ended; ask again later, or wait by ...
    """

    timeout: timedelta | None = None

    def __str__(self) -> str:
        if self.timeout is None:
            return f"message {self.message_id} has not ended; ask again later, or wait by result(..., timeout=...)"
        return f"message {self.message_id} has not ended within {self.timeout}; ask again later, or wait longer"


@dataclass(eq=False, repr=False)
class MessageFailed(ResultError):
    """The message whose result was asked for is a dead letter.

    ``reason`` says why it is not tried again; ``error`` is its last error with the traceback, or None.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.bury(engine, queue.dequeue(engine), reason="there is no such number")
        >>> queue.result(engine, message_id)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.MessageFailed: message ... failed: there is no such number; correct the cause, ...
    """

    reason: str
    error: str | None = None

    def __str__(self) -> str:
        line = exception_line(self.error)
        last = f" ({line[:500]})" if line else ""
        return (
            f"message {self.message_id} failed: {self.reason}{last}; correct the cause, then "
            "queue.dead_letters.redrive brings it back"
        )


class ResultCancelled(ResultError):
    """The message whose result was asked for was cancelled.

    Example:
        >>> queue.configure(engine, result_retention=timedelta(hours=1))
        >>> receipt = queue.cancel(engine, queue.enqueue(engine, channel="customer-7", payload=1).message_id)
        >>> queue.result(engine, receipt.message_id)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.ResultCancelled: message ... was cancelled and has no result; ...
    """

    def __str__(self) -> str:
        return f"message {self.message_id} was cancelled and has no result; enqueue it anew if it is needed"


@dataclass(eq=False, repr=False)
class ResultNotKept(ResultError):
    """The message has ended, but its result was not kept, or is deleted. ``problem`` says why, as far as is known.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> queue.result(engine, message_id)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.ResultNotKept: message ... has ended, and no result of it is kept: it expired ...
    """

    problem: str

    def __str__(self) -> str:
        return f"message {self.message_id} has ended, and no result of it is kept: {self.problem}"


@dataclass(eq=False, repr=False)
class UnknownMessage(ResultError):
    """The message whose result was asked for was never in this queue, or is in another channel than the given one.

    If nothing is kept of a message, its channel cannot be checked. A call that names a channel then raises this error.

    Example:
        >>> queue.result(engine, 1_000_000)
        Traceback (most recent call last):
        sqlalchemy_fairqueue.errors.UnknownMessage: queue ... knows no such message 1000000; correct id or channel, ...
    """

    queue: str

    def __str__(self) -> str:
        return f"queue {self.queue!r} knows no such message {self.message_id}; correct id or channel, or ask its queue"


def refuse_migration(error: DBAPIError, doing: str) -> NoReturn:
    """Raise *error*; if the database refused the operation *doing*, raise IsolationError or SchemaMismatch instead."""
    original = error.orig
    code = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    said = getattr(getattr(original, "diag", None), "message_primary", None) or str(original)
    if code == "25006":
        raise IsolationError(
            f"{doing}: {said}; connect to the primary, and let the transaction write: leave out "
            "postgresql_readonly and default_transaction_read_only"
        ) from error
    if code in {"QF003", "QF004"}:
        raise FairQueueError.of_sqlstate[code](f"{doing}: {said}") from error
    raise error


__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - what is defined here
    name for name, value in globals().items() if getattr(value, "__module__", "") == __name__
]
