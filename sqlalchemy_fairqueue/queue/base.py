"""The base class of ``Queue``: its name, schema and defaults, the types of verbs, and how verbs reach the database.

Each verb is written once, as a sync method. On a session, sync or async, ``_perform`` only records the work and returns
the receipt at once. In all other cases ``_ask`` and ``_perform`` send the work, and return a coroutine on an async
target. The decorators of this module tell type checkers which verbs return a coroutine; they do nothing at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.codecs import Codec, JsonCodec
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.configuration import new_policy_json
from sqlalchemy_fairqueue.database.engines import on, refused, run, run_transaction
from sqlalchemy_fairqueue.database.installation import check_installed
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.unit_of_work.sending import lock_order_of, send
from sqlalchemy_fairqueue.unit_of_work.sessions import connection_of, joined, record, session_of
from sqlalchemy_fairqueue.values.checks import SCHEMA_BYTES, check_count, check_flag, check_name
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation

PlainSession: TypeAlias = "Session | scoped_session[Any]"
AwaitedSession: TypeAlias = "AsyncSession | async_scoped_session[Any]"
AnySession: TypeAlias = "PlainSession | AwaitedSession"
Where: TypeAlias = "PlainSession | Connection | Engine"
AsyncWhere: TypeAlias = "AwaitedSession | AsyncConnection | AsyncEngine"
RecordedWhere: TypeAlias = "AnySession | Connection | Engine"
SentWhere: TypeAlias = "AsyncConnection | AsyncEngine"

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

if TYPE_CHECKING:
    S_contra = TypeVar("S_contra", contravariant=True)
    W_contra = TypeVar("W_contra", contravariant=True)
    A_contra = TypeVar("A_contra", contravariant=True)
    R_co = TypeVar("R_co", covariant=True)

    class BoundVerb(Protocol[W_contra, A_contra, P, R_co]):
        """A verb bound to a queue; on a target of type A_contra it returns a coroutine."""

        @overload
        def __call__(self, where: W_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
        @overload
        def __call__(self, where: A_contra, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...

    class Verb(Protocol[S_contra, W_contra, A_contra, P, R_co]):
        """The verb as an attribute of the class, before it is bound to a queue."""

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> Callable[Concatenate[Any, W_contra, P], R_co]: ...
        @overload
        def __get__(self, instance: S_contra, owner: type[Any]) -> BoundVerb[W_contra, A_contra, P, R_co]: ...


def verb(method: Callable[Concatenate[S, Where, P], R]) -> Verb[S, Where, AsyncWhere, P, R]:
    """Annotate a method that always talks to the database; on an async target it returns a coroutine."""
    return method  # pyright: ignore[reportReturnType] - pyright overlooks the __get__ of a function


def recorded(method: Callable[Concatenate[S, RecordedWhere, P], R]) -> Verb[S, RecordedWhere, SentWhere, P, R]:
    """Annotate a method that a session, sync or async, only records. On other targets its calls are sent at once."""
    return method  # pyright: ignore[reportReturnType] - pyright overlooks the __get__ of a function


def on_engine(method: Callable[Concatenate[S, Engine, P], R]) -> Verb[S, Engine, AsyncEngine, P, R]:
    """Annotate a method that runs transactions of its own, and therefore needs an engine."""
    return method  # pyright: ignore[reportReturnType] - pyright overlooks the __get__ of a function


def on_session(function: Callable[Concatenate[PlainSession, P], R]) -> BoundVerb[PlainSession, AwaitedSession, P, R]:
    return function  # type: ignore[return-value]


Q = TypeVar("Q", bound="QueueBase")
# The attribute of a session that lists its open groups. A session without open groups lacks the attribute, so that an
# enqueue costs it only one look-up.
OPEN_GROUPS = "_fairqueue_open_groups"


class QueueBase:
    """The base class of :class:`sqlalchemy_fairqueue.Queue`, with its name, schema, codec and defaults."""

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
        check_flag("notify", notify)
        check_flag("check_kinds", check_kinds)
        self.name = name
        self.schema = schema
        self.codec = codec
        self.defaults: ChannelPolicy = defaults or ChannelPolicy()
        self.max_attempts = max_attempts
        self.notify = notify
        self.check_kinds = check_kinds
        self._target = Target(schema, name, bind_arguments, notify, new_policy_json(self.defaults))
        # Kinds that enqueues need not check again.
        self._checked_kinds: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        """Create the state of a mixin. Mixins extend this method and not ``__init__``, whose arguments users see."""

    def _check_kind(self, kind: str) -> None:
        """Do nothing; HandlerMethods overrides this, and warns if the queue has handlers but none for the kind."""

    def _check_groups(self, groups: Sequence[Any]) -> None:
        """Do nothing; GroupMethods overrides this.

        *groups* are those whose ``with queue.group(...)`` block is running on the session. If a group of this queue is
        among them, GroupMethods warns that the enqueue does not join the group.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}" + (f", schema={self.schema!r})" if self.schema else ")")

    def _perform(self, where: RecordedWhere, operations: list[Operation], result: R) -> R:
        if (session := session_of(where)) is not None:
            if operations:
                record(session, operations)
            return result
        return on(where, lambda sync: self._sent_at_once(sync, operations, result))

    @staticmethod
    def _sent_at_once(where: Connection | Engine, operations: list[Operation], result: R) -> R:
        if isinstance(where, Engine):
            updates = run_transaction(where, lambda connection: send(connection, operations), isolates=False)
        elif isinstance(where, Connection):
            updates = send(where, operations)
        else:
            raise refused(where)
        for update in updates:
            update()
        return result

    def _ask(
        self, where: Where, work: Callable[[Connection], R], *, settles: bool = False, enqueues: str | None = None
    ) -> R:
        """Call *work* at once and return its result: on an engine by :func:`run`, else in the caller's transaction.

        If *settles*, the transaction may not enqueue afterwards. *enqueues* is the channel that *work* enqueues to.
        """
        return on(where, lambda sync: self._answer(sync, work, settles=settles, enqueues=enqueues))

    def _read(self, where: Where, function: str, doing: str, kind: Callable[..., R], /, **values: Any) -> list[R]:
        return self._ask(where, lambda connection: self._target.read(connection, function, doing, kind, **values))

    def _answer(self, where: Where, work: Callable[[Connection], R], *, settles: bool, enqueues: str | None) -> R:
        if isinstance(where, Engine):
            return run(where, lambda connection: _committed(connection, self.schema, work))
        if (session := session_of(where)) is not None:
            is_ordered = settles or enqueues is not None
            connection = joined(session, self._target) if is_ordered else connection_of(session, self._target)
        elif isinstance(where, Connection):
            connection = where
        else:
            raise refused(where)
        check_installed(connection, self.schema)
        if not settles and enqueues is None:
            return work(connection)
        lock_order = lock_order_of(connection)
        keys = [] if enqueues is None else [(self.schema or "", self.name, enqueues, "")]
        lock_order.check(keys)
        result = work(connection)
        lock_order.advance(keys)
        lock_order.settled |= settles
        return result


class Facet(Generic[Q]):
    """The base class of facets, which group the calls on one subject of a queue, such as ``queue.plans``."""

    def __init__(self, queue: Q) -> None:
        self._queue = queue
        self._target = queue._target  # noqa: SLF001 - a facet is a part of its queue; so below
        self._ask = queue._ask  # noqa: SLF001
        self._read = queue._read  # noqa: SLF001
        self._perform = queue._perform  # noqa: SLF001


def schema_of(queues: Sequence[QueueBase]) -> str | None:
    for queue in queues:
        if not isinstance(queue, QueueBase):
            raise InvalidArgument(f"queues has {queue!r:.80} where a Queue is needed; give each queue as an argument")
    return queues[0].schema if queues else None


def _committed(connection: Connection, schema: str | None, work: Callable[[Connection], R]) -> R:
    check_installed(connection, schema)
    result = work(connection)
    connection.commit()
    return result
