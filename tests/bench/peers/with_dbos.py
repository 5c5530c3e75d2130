"""DBOS: a message is a workflow on a queue. Bulk is many enqueues in one transaction: it has no call for several.

With partitions, a tenant is a partition of the queue, of which a process handles at most half as many messages at once
as it has slots.
"""

import asyncio
import os
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient  # type: ignore[import-not-found]

from tests.bench.peers.protocol import BUSINESS, handled_in_thread


class Speaker:
    """See `tests.bench.peers.protocol.Peer`."""

    def __init__(self, url: str, mode: str = "") -> None:
        self._url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._engine = sqlalchemy.create_engine(self._url, pool_size=16)
        self._partitioned = mode == "partitioned"
        self._client: Any = None

    def _launch(self, slots: int) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self._url,
                "log_level": "ERROR",
                "application_version": "1",
                "executor_id": str(os.getpid()),
                "max_executor_threads": max(16, 2 * slots),
            }
        )

        def handle(tenant: str, number: int) -> None:
            del tenant
            handled_in_thread(number)

        DBOS.workflow(name="handle")(handle)
        DBOS.launch()
        limits = {"partition_worker_concurrency": max(1, slots // 2)} if self._partitioned else {}
        DBOS.register_queue(
            "bench", worker_concurrency=slots, polling_interval_sec=0.01, on_conflict="always_update", **limits
        )

    async def prepare(self) -> None:
        await asyncio.to_thread(self._launch, 1)
        await asyncio.to_thread(DBOS.destroy)

    async def open(self) -> None:
        self._client = DBOSClient(system_database_url=self._url, application_name="bench")

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:

        def add() -> None:
            if len(messages) == 1:
                self._client.enqueue(self._options(messages[0][0]), *messages[0])
                return
            with self._engine.begin() as connection:
                for message in messages:
                    self._client.enqueue_in_transaction(connection, self._options(message[0]), *message)

        await asyncio.to_thread(add)

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:

        def do() -> None:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(BUSINESS)
                if message:
                    self._client.enqueue_in_transaction(connection, self._options(message[0]), *message)
                connection.exec_driver_sql(afterwards)

        await asyncio.to_thread(do)

    def _options(self, tenant: str) -> dict[str, Any]:
        options = {"workflow_name": "handle", "queue_name": "bench", "app_version": "1"}
        return options | ({"queue_partition_key": tenant} if self._partitioned else {})

    async def work(self, slots: int) -> None:
        await asyncio.to_thread(self._launch, slots)

    async def stop(self) -> None:
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=10)
