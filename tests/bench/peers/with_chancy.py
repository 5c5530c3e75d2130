"""Chancy with its asyncio executor, and with eager polling, which looks again as soon as a job is done."""

from __future__ import annotations

import sys
from typing import Any

from chancy import Chancy, Job, Queue, Worker  # type: ignore[import-not-found]

from tests.bench.peers.speaking import handled, speak


async def handle(*, tenant: str, number: int) -> None:
    """What a job names."""
    del tenant
    await handled(number)


class WithChancy:
    """See `tests.bench.peers.speaking.Peer`."""

    def __init__(self, url: str) -> None:
        self._chancy: Any = Chancy(url)
        self._worker: Any = None

    async def prepare(self) -> None:
        """See there."""
        async with Chancy(self._chancy.dsn) as chancy:
            await chancy.migrate()

    async def open(self) -> None:
        """See there."""
        await self._chancy.__aenter__()

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        """See there."""
        jobs = [
            Job(func="tests.bench.peers.with_chancy.handle", kwargs={"tenant": tenant, "number": number})
            for tenant, number in messages
        ]
        if len(jobs) == 1:
            await self._chancy.push(jobs[0])
        else:
            async for _ in self._chancy.push_many(jobs):
                pass

    async def work(self, slots: int) -> None:
        """See there."""
        queue = Queue("default", concurrency=slots, executor=Chancy.Executor.Async, eager_polling=True)
        await self._chancy.declare(queue, upsert=True)
        self._worker = Worker(self._chancy, register_signal_handlers=False)
        await self._worker.start()

    async def stop(self) -> None:
        """See there."""
        if self._worker:
            await self._worker.stop()


if __name__ == "__main__":
    speak(WithChancy(sys.argv[1]))
