"""Chancy with its asyncio executor, and with eager polling, which polls again as soon as a job is done.

A tenant is an argument: its limits are those of queues, which are declared, and its priorities are the producer's.
"""

from typing import Any

from chancy import Chancy, Job, Queue, Worker  # type: ignore[import-not-found]
from psycopg.rows import dict_row

from tests.bench.peers.protocol import BUSINESS, handled


async def handle(*, tenant: str, number: int) -> None:
    """What a job names."""
    del tenant
    await handled(number)


class Speaker:
    """See `tests.bench.peers.protocol.Peer`."""

    def __init__(self, url: str) -> None:
        self._chancy: Any = Chancy(url)
        self._worker: Any = None

    async def prepare(self) -> None:
        async with Chancy(self._chancy.dsn) as chancy:
            await chancy.migrate()

    async def open(self) -> None:
        await self._chancy.__aenter__()

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        jobs = [self._job(message) for message in messages]
        if len(jobs) == 1:
            await self._chancy.push(jobs[0])
        else:
            async for _ in self._chancy.push_many(jobs):
                pass

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:
        async with (
            self._chancy.pool.connection() as connection,
            connection.cursor(row_factory=dict_row) as cursor,
            connection.transaction(),
        ):
            await cursor.execute(BUSINESS)
            if message:
                await self._chancy.push_many_ex(cursor, [self._job(message)])
            await cursor.execute(afterwards)

    @staticmethod
    def _job(message: tuple[str, int]) -> Any:
        tenant, number = message
        return Job(func="tests.bench.peers.with_chancy.handle", kwargs={"tenant": tenant, "number": number})

    async def work(self, slots: int) -> None:
        queue = Queue("default", concurrency=slots, executor=Chancy.Executor.Async, eager_polling=True)
        await self._chancy.declare(queue, upsert=True)
        self._worker = Worker(self._chancy, register_signal_handlers=False)
        await self._worker.start()

    async def stop(self) -> None:
        if self._worker:
            await self._worker.stop()
