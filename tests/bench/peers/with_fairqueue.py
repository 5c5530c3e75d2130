"""The library itself, as a user has it: a Session a transaction, or for a lone message the engine; and a Worker."""

import asyncio
from typing import Literal, cast

import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Enqueue, Queue
from sqlalchemy_fairqueue.sql import install_statements
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.worker import Worker
from sqlalchemy_fairqueue.worker.options import MOST_PREFETCH
from tests.bench.peers.protocol import BUSINESS, cost_of, handled_in_thread


class Speaker:
    """See `tests.bench.peers.protocol.Peer`.

    *fair_by* is what the queue shares by; messages tell their costs where that is the cost.
    """

    def __init__(self, url: str, prefetch: str = "", bulk: str = "session", fair_by: str = "messages") -> None:
        self._prefetch = int(prefetch or MOST_PREFETCH)
        self._fair_by = cast("Literal['messages', 'cost', 'seconds']", fair_by)
        self._url = url
        self._engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), pool_size=20)
        self._queue = Queue("bench", schema="fairqueue")
        self._worker: Worker | None = None
        self._in_session = bulk == "session"

    async def prepare(self) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute("create schema fairqueue")
            for statement in install_statements(latest_version(), "fairqueue"):
                connection.execute(statement.encode())
        self._queue.configure(self._engine, fair_by=self._fair_by)

    async def open(self) -> None:
        self._engine.connect().close()

    async def enqueue(self, messages: list[tuple[str, int]]) -> None:
        if len(messages) == 1:
            ((tenant, number),) = messages
            self._queue.enqueue(self._engine, channel=tenant, payload=number)
            return
        by_cost = self._fair_by == "cost"
        many = [
            Enqueue(channel=tenant, payload=number, cost=cost_of(number) if by_cost else 1)
            for tenant, number in messages
        ]
        if not self._in_session:
            self._queue.enqueue_many(self._engine, many)
            return
        with Session(self._engine) as session, session.begin():
            self._queue.enqueue_many(session, many)

    async def transact(self, message: tuple[str, int] | None, afterwards: str) -> None:

        def do() -> None:
            with Session(self._engine) as session, session.begin():
                session.execute(text(BUSINESS))
                if message:
                    self._queue.enqueue(session, channel=message[0], payload=message[1])
                session.execute(text(afterwards))

        await asyncio.to_thread(do)

    async def work(self, slots: int) -> None:

        def handle(delivery: Delivery) -> None:
            handled_in_thread(delivery.payload)

        self._queue.handler("default")(handle)
        self._worker = Worker(self._engine, self._queue, concurrency=slots, prefetch=self._prefetch if slots > 1 else 0)
        self._worker.start()

    async def stop(self) -> None:
        if self._worker:
            await asyncio.to_thread(self._worker.stop)
