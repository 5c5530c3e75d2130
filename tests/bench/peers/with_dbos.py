"""DBOS: a message is a workflow on a queue. Bulk is many enqueues in one transaction: it has no call for several."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient  # type: ignore[import-not-found]

from tests.bench.peers.speaking import handled_in_thread, speak


class WithDbos:
    """See `tests.bench.peers.speaking.Peer`."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._engine = sqlalchemy.create_engine(self._url)
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
        DBOS.register_queue("bench", worker_concurrency=slots, polling_interval_sec=0.01, on_conflict="always_update")

    async def prepare(self) -> None:
        """See there."""
        await asyncio.to_thread(self._launch, 1)
        await asyncio.to_thread(DBOS.destroy)

    async def open(self) -> None:
        """See there."""
        self._client = DBOSClient(system_database_url=self._url, application_name="bench")

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        """See there."""
        options: dict[str, Any] = {"workflow_name": "handle", "queue_name": "bench", "app_version": "1"}
        if len(messages) == 1:
            tenant, number = messages[0]
            await asyncio.to_thread(lambda: self._client.enqueue(options, tenant, number))
            return

        def add() -> None:
            with self._engine.begin() as connection:
                for message in messages:
                    self._client.enqueue_in_transaction(connection, dict(options), *message)

        await asyncio.to_thread(add)

    async def work(self, slots: int) -> None:
        """See there."""
        await asyncio.to_thread(self._launch, slots)

    async def stop(self) -> None:
        """See there."""
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=10)


if __name__ == "__main__":
    speak(WithDbos(sys.argv[1]))
