"""Litestar with AsyncSession, injected into the routes, on the drivers of async applications."""

from collections.abc import AsyncIterator

from httpx import ASGITransport, AsyncClient
from litestar import Litestar, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue
from tests.frameworks.conftest import Look
from tests.frameworks.shop import Order, Refused

Injected = NamedDependency[AsyncSession]


def _application(sessions: async_sessionmaker[AsyncSession], queue: Queue) -> Litestar:
    async def give() -> AsyncIterator[AsyncSession]:
        async with sessions() as session:
            yield session

    @post("/orders/{customer:str}", status_code=202)
    async def place(customer: FromPath[str], session: Injected, *, refuse: FromQuery[bool] = False) -> dict[str, int]:
        order = Order(customer=customer)
        session.add(order)
        await session.flush()
        queue.enqueue(session, channel=customer, payload=order.id)
        if refuse:
            raise Refused
        await session.commit()
        return {"id": order.id}

    @get("/orders/{number:int}")
    async def show(number: FromPath[int], session: Injected) -> dict[str, bool]:
        return {"confirmed": (await session.get_one(Order, number)).confirmed}

    # Its default configures the logging of the whole process, and so of the tests that follow.
    return Litestar([place, show], dependencies={"session": Provide(give)}, logging_config=None)


async def test_requests_and_a_worker(async_engine: AsyncEngine, look: Look) -> None:
    """What a route commits is confirmed by the worker; of one that raises nothing is left, neither row nor message."""
    queue = Queue("mails")

    @queue.handler
    async def confirm(delivery: Delivery, session: AsyncSession) -> None:
        (await session.get_one(Order, delivery.payload)).confirmed = True

    app = _application(async_sessionmaker(async_engine, expire_on_commit=False), queue)
    # Not Litestar's own client: it runs the application in another event loop than the test's engine.
    transport = ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    async with AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.post("/orders/mallory?refuse=1")).status_code == 500
        assert look(queue) == ([], 0)
        created = await client.post("/orders/alice")
        assert created.status_code == 202
        assert look(queue) == ([("alice", False)], 1)

        await AsyncWorker(async_engine, queue, concurrency=1).run(drain=True)
        assert (await client.get(f"/orders/{created.json()['id']}")).json() == {"confirmed": True}
    assert look(queue) == ([("alice", True)], 0)
