"""PgQueuer on asyncpg: its hard cap of tasks in flight must be at least twice the batch that it takes.

A tenant is part of the payload: its limits are those of entry points, which workers declare, and its priorities are
the producer's to give.
"""

import asyncio
import json
from typing import Any

import asyncpg
from pgqueuer import PgQueuer  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]

from tests.bench.peers.protocol import BUSINESS, handled


class Speaker:
    """See `tests.bench.peers.protocol.Peer`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._queries: Any = None
        self._pool: Any = None
        self._queue: Any = None
        self._worker: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        await self.open()
        await self._queries.install()

    async def open(self) -> None:
        self._queries = Queries(AsyncpgDriver(await asyncpg.connect(self._url)))

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        payloads = [json.dumps(message).encode() for message in messages]
        if len(messages) == 1:
            await self._queries.enqueue("handle", payloads[0])
        else:
            many = len(messages)
            await self._queries.enqueue(["handle"] * many, payloads, [0] * many)

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:
        if not self._pool:
            self._pool = await asyncpg.create_pool(self._url, min_size=8, max_size=8)
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(BUSINESS)
            if message:
                await Queries(AsyncpgDriver(connection)).enqueue("handle", json.dumps(message).encode())
            await connection.execute(afterwards)

    async def work(self, slots: int) -> None:
        self._queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(self._url)))

        async def handle(job: Any) -> None:
            await handled(json.loads(job.payload)[1])

        self._queue.entrypoint("handle")(handle)
        running = self._queue.run(batch_size=max(1, slots // 2), max_concurrent_tasks=max(2, slots))
        self._worker = asyncio.create_task(running)

    async def stop(self) -> None:
        if self._worker:
            self._queue.shutdown.set()
            await asyncio.wait([self._worker], timeout=10)
