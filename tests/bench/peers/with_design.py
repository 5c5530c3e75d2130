"""A published design, driven by a thread a slot: each takes some messages, handles and completes them."""

from __future__ import annotations

import asyncio
import json
import sys
import threading

import psycopg

from tests.bench.designs import DESIGNS, design_sql
from tests.bench.peers.speaking import handled_in_thread, speak

_IDLE = 0.005


class Design:
    """See `tests.bench.peers.speaking.Peer`.

    A dequeue takes *batch* messages, and a completion gives them back all at once. Idle threads look every 5 ms.
    """

    def __init__(self, url: str, name: str, batch: int) -> None:
        self._url, self._name, self._batch = url, name, batch
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._producer: psycopg.Connection | None = None

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._url, autocommit=True, prepare_threshold=0)

    async def prepare(self) -> None:
        """See there."""
        with self._connect() as connection:
            connection.execute(design_sql(DESIGNS[self._name]).encode(), prepare=False)

    async def open(self) -> None:
        """See there."""
        self._producer = self._connect()

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        """See there."""
        if self._producer is None:
            raise AssertionError
        tenants = [tenant for tenant, _ in messages]
        contents = [json.dumps(number).encode() for _, number in messages]
        self._producer.execute(f"select {self._name}.enqueue(%b, %b)".encode(), (tenants, contents))

    async def work(self, slots: int) -> None:
        """See there."""
        for _ in range(slots):
            thread = threading.Thread(target=self._loop, daemon=True)
            thread.start()
            self._threads.append(thread)

    async def stop(self) -> None:
        """See there."""
        self._stopped.set()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in self._threads))

    def _loop(self) -> None:
        dequeue = f"select id, content from {self._name}.dequeue(%b)".encode()
        complete = f"select {self._name}.complete(%b)".encode()
        with self._connect() as connection:
            while not self._stopped.is_set():
                rows = connection.execute(dequeue, (self._batch,), binary=True).fetchall()
                for _, content in rows:
                    handled_in_thread(json.loads(content))
                if rows:
                    connection.execute(complete, ([message for message, _ in rows],))
                else:
                    self._stopped.wait(_IDLE)


if __name__ == "__main__":
    speak(Design(sys.argv[1], sys.argv[2], int(sys.argv[3])))
