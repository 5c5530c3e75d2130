"""A published design, driven by a thread a slot: each takes some messages, handles and completes them."""

import asyncio
import json
import threading

import psycopg

from tests.bench.designs import design_sql
from tests.bench.peers.protocol import BUSINESS, handled_in_thread

_IDLE = 0.005


class Speaker:
    """See `tests.bench.peers.protocol.Peer`.

    A dequeue takes *batch* messages, and a completion gives them back all at once. Idle threads look every 5 ms.
    """

    def __init__(self, url: str, name: str, batch: str) -> None:
        self._url, self._name, self._batch = url, name, int(batch)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._producer: psycopg.Connection | None = None
        self._enqueue = f"select {name}.enqueue(%b, %b)".encode()
        self._own = threading.local()

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._url, autocommit=True, prepare_threshold=0)

    async def prepare(self) -> None:
        with self._connect() as connection:
            connection.execute(design_sql(self._name).encode(), prepare=False)

    async def open(self) -> None:
        self._producer = self._connect()

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        if self._producer is None:
            raise AssertionError
        tenants = [tenant for tenant, _ in messages]
        contents = [json.dumps(number).encode() for _, number in messages]
        self._producer.execute(self._enqueue, (tenants, contents))

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:

        def do() -> None:
            if not hasattr(self._own, "connection"):
                self._own.connection = self._connect()
            connection: psycopg.Connection = self._own.connection
            with connection.transaction():
                connection.execute(BUSINESS.encode())
                if message:
                    connection.execute(self._enqueue, ([message[0]], [json.dumps(message[1]).encode()]))
                connection.execute(afterwards.encode())

        await asyncio.to_thread(do)

    async def work(self, slots: int) -> None:
        self._batch = self._batch if slots > 1 else 1
        for _ in range(slots):
            thread = threading.Thread(target=self._loop, daemon=True)
            thread.start()
            self._threads.append(thread)

    async def stop(self) -> None:
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
