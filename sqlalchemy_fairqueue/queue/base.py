"""What every part of a queue's face stands on: where it points, and how an operation finds its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.asynchronous import AsyncConnection, AsyncEngine
from sqlalchemy_fairqueue.codecs import Codec, JsonCodec
from sqlalchemy_fairqueue.engines import check_driver, refused
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.unit_of_work import Target, record, send, session_of
from sqlalchemy_fairqueue.values import SCHEMA_BYTES, ChannelPolicy, check_count, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import Session, scoped_session

    from sqlalchemy_fairqueue.asynchronous import AsyncSession, async_scoped_session
    from sqlalchemy_fairqueue.unit_of_work import Operation

    AnySession = Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]


class QueueBase:
    """Name, place and defaults of a queue. See :class:`sqlalchemy_fairqueue.Queue`."""

    def __init__(
        self,
        name: str,
        *,
        schema: str | None = None,
        codec: Codec | None = None,
        defaults: ChannelPolicy | None = None,
        max_attempts: int = 20,
        bind_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        check_name("queue name", name)
        if schema is not None:
            check_name("schema", schema, SCHEMA_BYTES)
        check_count("max_attempts", max_attempts, 1, 2**31 - 1)
        given: object = codec
        codec = JsonCodec() if codec is None else codec
        if isinstance(given, type) or not isinstance(codec, Codec):
            raise InvalidArgument(f"codec is {given!r:.80}; give an object with encode(payload) and decode(content)")
        if defaults is not None and not isinstance(defaults, ChannelPolicy):
            raise InvalidArgument(f"defaults is {defaults!r:.80}; give a ChannelPolicy")
        self.name = name
        self.schema = schema
        self.codec = codec
        self.defaults = defaults or ChannelPolicy()
        self.max_attempts = max_attempts
        self._target = Target(schema, name, bind_arguments)

    def __repr__(self) -> str:
        """The call that makes it."""
        return f"{type(self).__name__}({self.name!r}" + (f", schema={self.schema!r})" if self.schema else ")")

    def _perform(self, where: AnySession | Connection | Engine, operations: list[Operation]) -> None:
        """Record on a session; send at once in a connection's transaction, or in one of its own on an engine."""
        if (session := session_of(where)) is not None:
            if operations:
                record(session, operations)
        elif isinstance(where, Connection):
            send(where, operations)
        elif isinstance(where, Engine):
            check_driver(where)
            with where.begin() as connection:
                send(connection, operations)
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
            check_driver(where.sync_engine)
            async with where.begin() as connection:
                await connection.run_sync(self._perform, operations)
        else:
            raise refused(where, "an AsyncConnection or an AsyncEngine")
