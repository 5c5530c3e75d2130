"""The driver asyncpg, for async engines."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.drivers.base import CHANNEL, Content, Driver, Listener, RunInLoop

if TYPE_CHECKING:
    from collections.abc import Iterable


def _row_id(ctid: str) -> tuple[int, ...]:
    return tuple(map(int, ctid.strip("()").split(",")))


def _row_ids(ctids: Iterable[str]) -> list[tuple[int, ...]]:
    return list(map(_row_id, ctids))


def _contents(values: Iterable[bytes | None]) -> list[Content | None]:
    return [None if value is None else Content(value) for value in values]


class Asyncpg(Driver):
    """The driver asyncpg. It asks the server for the types of parameters, and sends all values in binary format."""

    name = "asyncpg"
    encoders = MappingProxyType({"tid": _row_id, "tid[]": _row_ids, "bytea": Content, "bytea[]": _contents})

    def fileno(self, connection: Any) -> int:
        file: int = connection._transport.get_extra_info("socket").fileno()  # noqa: SLF001
        return file

    def database_key(self, connection: Any) -> tuple[object, ...]:
        known = connection._params  # noqa: SLF001
        return connection._addr, known.database, known.user  # noqa: SLF001

    def listener(self, connection: Any, run: RunInLoop) -> Listener:
        return _AsyncpgListener(connection, run)


class _AsyncpgListener(Listener):
    """A listener that gets notifications only while one of its methods runs the event loop."""

    def __init__(self, connection: Any, run: RunInLoop) -> None:
        self._connection = connection
        self._run = run
        self._payloads: list[str] = []
        self._came = asyncio.Event()

    def wait(self, stop: int, seconds: float) -> None:
        self._run(self._wait(stop, seconds))
        if self._connection.is_closed():
            raise ConnectionError("the connection was closed by the server, or between here and there")

    def received(self) -> list[str]:
        payloads, self._payloads = self._payloads, []
        return payloads

    def _execute(self, sql: str) -> list[str]:
        return [row[0] for row in self._run(self._connection.fetch(sql))]

    def _listen(self) -> None:
        self._run(self._connection.add_listener(CHANNEL, self._notified))
        self._connection.add_termination_listener(lambda _: self._came.set())

    def _notified(self, connection: Any, pid: int, channel: str, payload: str) -> None:  # noqa: ARG002 - as asyncpg calls it
        self._payloads.append(payload)
        self._came.set()

    async def _wait(self, stop: int, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(stop, self._came.set)
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(stop)
            self._came.clear()
