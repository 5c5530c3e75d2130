"""Awa: its engine is native, its handlers are coroutines.

With partitions, a tenant's messages go to one of four physical queues, each of which is sure of one worker and shares
the others, which is what it documents for one hot queue with keys.
"""

from dataclasses import dataclass
from typing import Any

from awa import AsyncClient, PartitionedQueue  # type: ignore[import-not-found]

from tests.bench.peers.protocol import BUSINESS, handled

_PARTITIONS = 4


@dataclass
class Handle:
    """The arguments of a job."""

    tenant: str
    number: int


class Speaker:
    """See `tests.bench.peers.protocol.Peer`."""

    def __init__(self, url: str, mode: str = "") -> None:
        # Its driver wants a host before it looks for the socket's folder.
        self._client: Any = AsyncClient(url.replace("@/", "@localhost/", 1))
        self._partitions: Any = PartitionedQueue("default", _PARTITIONS) if mode == "partitioned" else None

    async def prepare(self) -> None:
        await self._client.migrate()
        # Bulk enqueues want its newer storage, which the first worker would otherwise choose.
        await self._client.install_queue_storage()

    async def open(self) -> None:

        async def handle(job: Any) -> None:
            await handled(job.args.number)

        queue = self._partitions.physical_queues[0] if self._partitions else "default"
        self._client.task(Handle, queue=queue)(handle)

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        jobs = [Handle(tenant, number) for tenant, number in messages]
        if len(jobs) == 1:
            await self._client.insert(jobs[0], **self._where(messages[0][0]))
        elif self._partitions:
            await self._client.enqueue_many_copy(jobs, opts=[self._where(tenant) for tenant, _ in messages])
        else:
            await self._client.enqueue_many_copy(jobs, queue="default")

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:
        async with await self._client.transaction() as transaction:
            await transaction.execute(BUSINESS)
            if message:
                await transaction.insert(Handle(*message), **self._where(message[0]))
            await transaction.execute(afterwards)

    def _where(self, tenant: str) -> dict[str, Any]:
        return self._partitions.route_by_key(tenant) if self._partitions else {"queue": "default"}

    async def work(self, slots: int) -> None:
        if self._partitions:
            queues = self._partitions.queue_configs(min_workers_per_partition=max(1, slots // (2 * _PARTITIONS)))
            await self._client.start(queues, global_max_workers=slots)
        else:
            await self._client.start([("default", slots)])

    async def stop(self) -> None:
        await self._client.shutdown()
