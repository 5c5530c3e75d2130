"""Base of a queue: its name, schema and defaults, the ways of an operation to the database, and the types of verbs.

Each verb is written once, for sync targets, and awaited where its target is async. A decorator of this module changes a
method's type and nothing else. What the method returns comes from ``_perform``, ``_ask`` or ``on``, which give a
coroutine where the target is async.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.codecs import Codec, JsonCodec
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.engines import on, own_transaction, refused, run
from sqlalchemy_fairqueue.database.installation import check_installed
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.unit_of_work.sending import lock_order_of, send
from sqlalchemy_fairqueue.unit_of_work.sessions import connection_of, joined, record, session_of
from sqlalchemy_fairqueue.values.checks import SCHEMA_BYTES, check_count, check_name
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Protocol

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation

    PlainSession = Session | scoped_session[Any]
    AwaitedSession = AsyncSession | async_scoped_session[Any]
    AnySession = PlainSession | AwaitedSession
    Where = PlainSession | Connection | Engine
    AsyncWhere = AwaitedSession | AsyncConnection | AsyncEngine
    RecordedWhere = AnySession | Connection | Engine
    SentWhere = AsyncConnection | AsyncEngine


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

if TYPE_CHECKING:
    S_contra = TypeVar("S_contra", contravariant=True)
    W_contra = TypeVar("W_contra", contravariant=True)
    A_contra = TypeVar("A_contra", contravariant=True)
    R_co = TypeVar("R_co", covariant=True)

    class BoundVerb(Protocol[W_contra, A_contra, P, R_co]):
        """A verb of one queue: awaited where its target is async."""

        @overload
        def __call__(self, where: W_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
        @overload
        def __call__(self, where: A_contra, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...

    class Verb(Protocol[S_contra, W_contra, A_contra, P, R_co]):
        """A method of a class that is a verb of its objects."""

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> Callable[Concatenate[Any, W_contra, P], R_co]: ...
        @overload
        def __get__(self, instance: S_contra, owner: type[Any]) -> BoundVerb[W_contra, A_contra, P, R_co]: ...


def verb(method: Callable[Concatenate[S, Where, P], R]) -> Verb[S, Where, AsyncWhere, P, R]:
    """Type a method that always talks with the database: on an async session it returns a coroutine, too."""
    return method  # pyright: ignore[reportReturnType] - of pyright: a function has a __get__ too


def recorded(method: Callable[Concatenate[S, RecordedWhere, P], R]) -> Verb[S, RecordedWhere, SentWhere, P, R]:
    """Type what is recorded on a session, sync or async, which returns at once; elsewhere it is sent at once."""
    return method  # pyright: ignore[reportReturnType] - of pyright: a function has a __get__ too


def on_engine(method: Callable[Concatenate[S, Engine, P], R]) -> Verb[S, Engine, AsyncEngine, P, R]:
    """Type what needs transactions of its own, and so an engine."""
    return method  # pyright: ignore[reportReturnType] - of pyright: a function has a __get__ too


def on_session(function: Callable[Concatenate[PlainSession, P], R]) -> BoundVerb[PlainSession, AwaitedSession, P, R]:
    """Type a function that works on a session, and is awaited on an async one."""
    return function  # type: ignore[return-value]


Q = TypeVar("Q", bound="QueueBase")
# In the namespace of a session while it makes groups: sessions without pay for one look-up an enqueue.
OPEN_GROUPS = "_fairqueue_open_groups"


class QueueBase:
    """Name, schema and defaults of a queue. See :class:`sqlalchemy_fairqueue.Queue`."""

    def __init__(
        self,
        name: str,
        *,
        schema: str | None = None,
        codec: Codec | None = None,
        defaults: ChannelPolicy | None = None,
        max_attempts: int = 20,
        bind_arguments: Mapping[str, Any] | None = None,
        notify: bool = True,
        check_kinds: bool = True,
    ) -> None:
        check_name("queue name", name)
        if schema is not None:
            check_name("schema", schema, SCHEMA_BYTES)
        check_count("max_attempts", max_attempts, 1, 2**31 - 1)
        given: object = codec
        codec = JsonCodec() if codec is None else codec
        if isinstance(given, type) or not isinstance(codec, Codec):
            raise InvalidArgument(
                f"codec is {given!r:.80}; give an object with encode(payload) and decode(content), such as JsonCodec()"
            )
        if defaults is not None and not isinstance(defaults, ChannelPolicy):
            raise InvalidArgument(f"defaults is {defaults!r:.80}; give a ChannelPolicy")
        if not isinstance(notify, bool):
            raise InvalidArgument(f"notify is {notify!r:.80}; give True or False")
        if not isinstance(check_kinds, bool):
            raise InvalidArgument(f"check_kinds is {check_kinds!r:.80}; give True or False")
        self.name = name
        self.schema = schema
        self.codec = codec
        self.defaults: ChannelPolicy = defaults or ChannelPolicy()
        self.max_attempts = max_attempts
        self.notify = notify
        self.check_kinds = check_kinds
        self._target = Target(schema, name, bind_arguments, notify)
        # Kinds of messages that _check_kind has checked.
        self._checked_kinds: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        """Make the state of a part here: ``__init__`` keeps the arguments that users see."""

    def _check_kind(self, kind: str) -> None:
        """Warn of a message that no handler of this object is for. The part with the handlers overrides it."""

    def _check_groups(self, groups: Sequence[Any]) -> None:
        """Warn of a message that is enqueued in the block of a group but not in the group."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}" + (f", schema={self.schema!r})" if self.schema else ")")

    def _perform(self, where: RecordedWhere, operations: list[Operation], result: R) -> R:
        """Record on a session; send at once in a connection's transaction, or in one of its own on an engine.

        The receipts of what is sent at once are filled in: on an engine after its commit.

        Returns:
            The result; on an async connection or engine a coroutine that does it all.
        """
        if (session := session_of(where)) is not None:
            if operations:
                record(session, operations)
            return result
        return on(where, lambda sync: self._sent_at_once(sync, operations, result))

    @staticmethod
    def _sent_at_once(where: Connection | Engine, operations: list[Operation], result: R) -> R:
        if isinstance(where, Engine):
            with own_transaction(where) as connection:
                updates = send(connection, operations)
        elif isinstance(where, Connection):
            updates = send(where, operations)
        else:
            raise refused(where)
        for update in updates:
            update()
        return result

    def _ask(self, where: Where, work: Callable[[Connection], R], *, settles: bool = False) -> R:
        """Do *work* at once: in the transaction of a session or connection, or in one of its own on an engine.

        With *settles* it counts as a settlement in the lock order of a transaction that is not its own.

        Returns:
            What *work* returns; on an async session, connection or engine a coroutine that does it.

        Raises:
            SchemaMismatch: The queue is not installed, or in a version that is too old.
        """
        return on(where, lambda sync: self._answer(sync, work, settles=settles))

    def _answer(self, where: Where, work: Callable[[Connection], R], *, settles: bool) -> R:
        if isinstance(where, Engine):
            return run(where, lambda connection: _committed(connection, self.schema, work))
        if (session := session_of(where)) is not None:
            connection = joined(session, self._target) if settles else connection_of(session, self._target)
        elif isinstance(where, Connection):
            connection = where
        else:
            raise refused(where)
        check_installed(connection, self.schema)
        if not settles:
            return work(connection)
        lock_order = lock_order_of(connection)
        result = work(connection)
        lock_order.settled = True
        return result


class Facet(Generic[Q]):
    """Base of the facets of a queue, such as ``queue.plans``."""

    def __init__(self, queue: Q) -> None:
        self._queue = queue
        self._target = queue._target  # noqa: SLF001 - a part of it, and the next two
        self._ask = queue._ask  # noqa: SLF001
        self._perform = queue._perform  # noqa: SLF001


def schema_of(queues: Sequence[QueueBase]) -> str | None:
    """Return the schema of the first of several queues.

    Raises:
        InvalidArgument: An element is no queue.
    """
    for queue in queues:
        if not isinstance(queue, QueueBase):
            raise InvalidArgument(f"queues has {queue!r:.80} where a Queue is needed; give each queue as an argument")
    return queues[0].schema if queues else None


def _committed(connection: Connection, schema: str | None, work: Callable[[Connection], R]) -> R:
    check_installed(connection, schema)
    result = work(connection)
    connection.commit()
    return result
