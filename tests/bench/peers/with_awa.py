"""Awa: its engine is native, its handlers are coroutines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient  # type: ignore[import-not-found]

from tests.bench.peers.speaking import handled, speak


@dataclass
class Handle:
    """The arguments of a job."""

    tenant: str
    number: int


class Awa:
    """See `tests.bench.peers.speaking.Peer`."""

    def __init__(self, url: str) -> None:
        # Its driver wants a host before it looks for the socket's folder.
        self._client: Any = AsyncClient(url.replace("@/", "@localhost/", 1))

    async def prepare(self) -> None:
        """See there."""
        await self._client.migrate()
        # Bulk enqueues want its newer storage, which the first worker would otherwise choose.
        await self._client.install_queue_storage()

    async def open(self) -> None:
        """See there."""

        async def handle(job: Any) -> None:
            await handled(job.args.number)

        self._client.task(Handle, queue="default")(handle)

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        """See there."""
        jobs = [Handle(tenant, number) for tenant, number in messages]
        if len(jobs) == 1:
            await self._client.insert(jobs[0], queue="default")
        else:
            await self._client.enqueue_many_copy(jobs, queue="default")

    async def work(self, slots: int) -> None:
        """See there."""
        await self._client.start([("default", slots)])

    async def stop(self) -> None:
        """See there."""
        await self._client.shutdown()


if __name__ == "__main__":
    speak(Awa(sys.argv[1]))
