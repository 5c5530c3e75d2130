"""procrastinate: an asyncio worker that is notified. Done jobs are deleted.

A tenant is an argument: its locks let one job of a tenant run at a time, in order, and its priorities are the
producer's to give; neither is meant to share workers among tenants.
"""

import asyncio
from typing import Any

import procrastinate  # type: ignore[import-not-found]
import psycopg_pool  # type: ignore[import-not-found,unused-ignore]

from tests.bench.peers.protocol import BUSINESS, handled


class Speaker:
    """See `tests.bench.peers.protocol.Peer`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: Any = None
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

        async def handle(*, tenant: str, number: int) -> None:
            del tenant
            await handled(number)

        self._task = self._app.task(name="handle")(handle)
        self._worker: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        if len(messages) == 1:
            await self._task.defer_async(tenant=messages[0][0], number=messages[0][1])
        else:
            await self._task.batch_defer_async(*({"tenant": tenant, "number": number} for tenant, number in messages))

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:
        if not self._pool:
            self._pool = psycopg_pool.AsyncConnectionPool(self._url, min_size=8, max_size=8, open=False)
            await self._pool.open(wait=True)
        async with self._pool.connection() as connection:
            await connection.execute(BUSINESS)
            if message:
                await self._task.configure(connection=connection).defer_async(tenant=message[0], number=message[1])
            await connection.execute(afterwards)

    async def work(self, slots: int) -> None:
        running = self._app.run_worker_async(
            concurrency=slots, delete_jobs="successful", install_signal_handlers=False, shutdown_graceful_timeout=10
        )
        self._worker = asyncio.create_task(running)

    async def stop(self) -> None:
        if self._worker:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
