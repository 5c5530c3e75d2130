"""Oban for Python, as published there: the edition without its commercial extension, whose bulk fetching it lacks."""

from typing import Any

from oban import Oban, worker  # type: ignore[import-not-found]
from oban.schema import install  # type: ignore[import-not-found]

from tests.bench.peers.protocol import BUSINESS, handled


class _Handle:
    async def process(self, job: Any) -> None:
        await handled(job.args["number"])


_Worker: Any = worker(queue="default")(_Handle)


class Speaker:
    """See `tests.bench.peers.protocol.Peer`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: Any = None
        self._oban: Any = None

    async def prepare(self) -> None:
        pool = await Oban.create_pool(self._url)
        await install(pool)
        await pool.close()

    async def open(self) -> None:
        self._pool = await Oban.create_pool(self._url)
        self._oban = Oban(pool=self._pool)

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        jobs = [_Worker.new({"tenant": tenant, "number": number}) for tenant, number in messages]
        if len(jobs) == 1:
            await self._oban.enqueue(jobs[0])
        else:
            await self._oban.enqueue_many(jobs)

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(BUSINESS)
            if message:
                job = _Worker.new({"tenant": message[0], "number": message[1]})
                await self._oban.enqueue(job, conn=connection)
            await connection.execute(afterwards)

    async def work(self, slots: int) -> None:
        self._oban = Oban(pool=self._pool, queues={"default": slots})
        await self._oban.start()

    async def stop(self) -> None:
        if self._oban:
            await self._oban.stop()
