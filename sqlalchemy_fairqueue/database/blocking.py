"""An AsyncEngine for code that waits: each connection has an event loop, which runs while a call on it waits."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy_fairqueue.database.engines import without_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine, PoolProxiedConnection

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine


def blocking(engine: AsyncEngine) -> Engine:
    """Return an engine that connects as an AsyncEngine does, with its events and options, and waits for its answers.

    It keeps no connection. It is not for a thread whose event loop runs.
    """
    connecting = without_pool(engine.sync_engine)
    return without_pool(engine.sync_engine, lambda: _connected(connecting))


def _connected(engine: Engine) -> _Waiting:
    # Windows' own loop waits for no socket that it has not made, as psycopg needs it.
    loop = asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()
    try:
        return _WaitingConnection(_waited(loop, engine.raw_connection), loop)
    except BaseException:
        loop.close()
        raise


def _waited(loop: asyncio.AbstractEventLoop, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    # It needs greenlet.
    from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415

    return loop.run_until_complete(greenlet_spawn(work, *arguments, **named))


class _Waiting:
    """What SQLAlchemy puts around a cursor of an asyncio driver's, for code outside of an event loop."""

    def __init__(self, adapted: Any, loop: asyncio.AbstractEventLoop) -> None:
        vars(self).update(_adapted=adapted, _loop=loop)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._adapted, name)
        return partial(_waited, self._loop, value) if callable(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        _waited(self._loop, setattr, self._adapted, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _WaitingConnection(_Waiting):
    """The same for a connection, whose loop ends with it."""

    def __init__(self, pooled: PoolProxiedConnection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(pooled.dbapi_connection, loop)
        vars(self).update(_pooled=pooled)

    def cursor(self, *arguments: Any, **named: Any) -> _Waiting:
        """Return a cursor."""
        return _Waiting(_waited(self._loop, self._adapted.cursor, *arguments, **named), self._loop)

    def close(self) -> None:
        """Close the connection."""
        self._end(self._pooled.close)

    def terminate(self) -> None:
        """End the connection, which may be broken."""
        self._end(self._pooled.invalidate)

    def _end(self, work: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            try:
                _waited(self._loop, work)
            finally:
                self._loop.close()
