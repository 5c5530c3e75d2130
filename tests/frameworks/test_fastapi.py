"""FastAPI with AsyncSession, on the drivers of async applications."""

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue
from tests.frameworks.conftest import Look
from tests.frameworks.shop import Order, Refused


def _application(sessions: async_sessionmaker[AsyncSession], queue: Queue) -> FastAPI:
    app = FastAPI()

    @app.post("/orders/{customer}", status_code=202)
    async def place(customer: str, *, refuse: bool = False) -> dict[str, int]:
        async with sessions.begin() as session:
            order = Order(customer=customer)
            session.add(order)
            await session.flush()
            queue.enqueue(session, channel=customer, payload=order.id)
            if refuse:
                raise Refused
        return {"id": order.id}

    @app.get("/orders/{number}")
    async def show(number: int) -> dict[str, bool]:
        async with sessions() as session:
            return {"confirmed": (await session.get_one(Order, number)).confirmed}

    return app


async def test_requests_and_a_worker(async_engine: AsyncEngine, look: Look) -> None:
    """What a route commits is confirmed by the worker; of one that raises nothing is left, neither row nor message."""
    queue = Queue("mails")

    @queue.handler
    async def confirm(delivery: Delivery, session: AsyncSession) -> None:
        (await session.get_one(Order, delivery.payload)).confirmed = True

    app = _application(async_sessionmaker(async_engine, expire_on_commit=False), queue)
    transport = ASGITransport(app, raise_app_exceptions=False)
    async with AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.post("/orders/mallory?refuse=1")).status_code == 500
        assert look(queue) == ([], 0)
        created = await client.post("/orders/alice")
        assert created.status_code == 202
        assert look(queue) == ([("alice", False)], 1)

        await AsyncWorker(async_engine, queue, concurrency=1).run(drain=True)
        assert (await client.get(f"/orders/{created.json()['id']}")).json() == {"confirmed": True}
    assert look(queue) == ([("alice", True)], 0)
