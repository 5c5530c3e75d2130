"""Base of a queue: its name, schema and defaults, and the ways of an operation to the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.codecs import Codec, JsonCodec
from sqlalchemy_fairqueue.database import Target, check_installed
from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy_fairqueue.database.drivers import check_driver
from sqlalchemy_fairqueue.database.engines import arun, async_own_transaction, own_transaction, refused, run
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.named_arguments import named_arguments
from sqlalchemy_fairqueue.unit_of_work import connection_of, joined, lock_order_of, record, send, session_of
from sqlalchemy_fairqueue.values import SCHEMA_BYTES, ChannelPolicy, check_count, check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy.orm import Session, scoped_session

    from sqlalchemy_fairqueue.unit_of_work import LockOrder, Operation

    Where = Session | scoped_session[Any] | Connection | Engine
    AsyncWhere = AsyncSession | async_scoped_session[Any] | AsyncConnection | AsyncEngine
    AnySession = Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]

R = TypeVar("R")
# In the namespace of a session while it makes groups: sessions without pay for one look-up an enqueue.
OPEN_GROUPS = "_fairqueue_open_groups"


class QueueBase:
    """Name, schema and defaults of a queue. See :class:`sqlalchemy_fairqueue.Queue`."""

    @named_arguments
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
        self._begin()

    def _begin(self) -> None:
        """Make the state of a part here: ``__init__`` keeps the arguments that users see."""

    def _check_kind(self, kind: str) -> None:
        """Warn of a message that no handler of this object is for. The part that has the handlers does it."""

    def _check_groups(self, groups: Sequence[Any]) -> None:
        """Warn of a message that is added beside groups of the queue whose blocks are open, as the part of groups."""

    def __repr__(self) -> str:
        """The call that makes it."""
        return f"{type(self).__name__}({self.name!r}" + (f", schema={self.schema!r})" if self.schema else ")")

    def _perform(self, where: AnySession | Connection | Engine, operations: list[Operation]) -> None:
        """Record on a session; send at once in a connection's transaction, or in one of its own on an engine.

        The receipts of what is sent at once are filled in: on an engine after its commit.
        """
        if (session := session_of(where)) is not None:
            if operations:
                record(session, operations)
        elif isinstance(where, Connection):
            for update in send(where, operations):
                update()
        elif isinstance(where, Engine):
            with own_transaction(where) as connection:
                updates = send(connection, operations)
            for update in updates:
                update()
        else:
            raise refused(where, "a session, a Connection or an Engine")

    async def _aperform(self, where: AsyncConnection | AsyncEngine, operations: list[Operation]) -> None:
        """As _perform, on an async connection or engine."""
        if session_of(where) is not None:
            raise InvalidArgument(
                f"got a {type(where).__name__}, on which the call only records; use the method without the 'a' in front"
            )
        if isinstance(where, AsyncConnection):
            await where.run_sync(self._perform, operations)
        elif isinstance(where, AsyncEngine):
            async with async_own_transaction(where) as connection:
                updates = await connection.run_sync(send, operations)
            for update in updates:
                update()
        else:
            raise refused(where, "an AsyncConnection or an AsyncEngine")

    def _ask(self, where: Where, work: Callable[[Connection], R], *, settles: bool = False) -> R:
        """Do *work* at once: in the transaction of a session or connection, or in one of its own on an engine.

        With *settles* it counts as a settlement in the lock order of a transaction that is not its own.

        Raises:
            SchemaMismatch: The queue is not installed, or in a version that is too old.
        """
        schema = self.schema
        given: object = where
        if isinstance(given, (AsyncSession, async_scoped_session)):
            raise InvalidArgument(
                f"got a {type(given).__name__} where a Session, a Connection or an Engine is needed; "
                "await the method of the same name with an 'a' in front"
            )
        if (session := session_of(where)) is not None:
            found = connection_of(session, self._target)
            check_driver(found)
            check_installed(found, schema)
            return _settled(joined(session, self._target)[1], found, work) if settles else work(found)
        if isinstance(where, Connection):
            check_driver(where)
            check_installed(where, schema)
            return _settled(lock_order_of(where), where, work) if settles else work(where)
        if isinstance(where, Engine):
            return run(where, lambda connection: _committed(connection, schema, work))
        raise refused(where, "a Session, a Connection or an Engine")

    async def _aask(self, where: AsyncWhere, work: Callable[[Connection], R], *, settles: bool = False) -> R:
        """As _ask, on an async session, connection or engine."""
        found = where() if isinstance(where, async_scoped_session) else where
        if isinstance(found, (AsyncSession, AsyncConnection)):
            return await found.run_sync(lambda sync: self._ask(sync, work, settles=settles))
        if isinstance(found, AsyncEngine):
            return await arun(found, lambda connection: _committed(connection, self.schema, work))
        raise refused(found, "an AsyncSession, an AsyncConnection or an AsyncEngine")


def schema_of(queues: Sequence[QueueBase]) -> str | None:
    """The schema of the queues that something is made for: that of the first.

    Raises:
        InvalidArgument: One of them is no queue.
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


def _settled(lock_order: LockOrder, connection: Connection, work: Callable[[Connection], R]) -> R:
    result = work(connection)
    lock_order.settled = True
    return result
