"""procrastinate: an asyncio worker; a tenant is an argument, since locks would serialise it. Done jobs are deleted."""

from __future__ import annotations

import asyncio
import sys

import procrastinate  # type: ignore[import-not-found]

from tests.bench.peers.speaking import handled, speak


class Procrastinate:
    """See `tests.bench.peers.speaking.Peer`."""

    def __init__(self, url: str) -> None:
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

        async def handle(*, tenant: str, number: int) -> None:
            del tenant
            await handled(number)

        self._task = self._app.task(name="handle")(handle)
        self._worker: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """See there."""
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        """See there."""
        await self._app.open_async()

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        """See there."""
        if len(messages) == 1:
            await self._task.defer_async(tenant=messages[0][0], number=messages[0][1])
        else:
            await self._task.batch_defer_async(*({"tenant": tenant, "number": number} for tenant, number in messages))

    async def work(self, slots: int) -> None:
        """See there."""
        running = self._app.run_worker_async(
            concurrency=slots, delete_jobs="successful", install_signal_handlers=False, shutdown_graceful_timeout=10
        )
        self._worker = asyncio.create_task(running)

    async def stop(self) -> None:
        """See there."""
        if self._worker:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)


if __name__ == "__main__":
    speak(Procrastinate(sys.argv[1]))
