"""SQLModel with FastAPI: a Session that a dependency gives, on the drivers of sync applications."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy import URL
from sqlalchemy.orm import sessionmaker
from sqlmodel import Field, Session, SQLModel, create_engine, select

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from tests.frameworks.conftest import Look
from tests.frameworks.shop import Refused


class Order(SQLModel, table=True):
    """An order, confirmed by a handler."""

    __tablename__ = "shop_order"

    id: int | None = Field(default=None, primary_key=True)
    customer: str
    confirmed: bool = False


def _application(new_session: sessionmaker[Session], queue: Queue) -> FastAPI:
    app = FastAPI()

    def sessions() -> Iterator[Session]:
        with new_session() as session:
            yield session

    @app.post("/orders/{customer}", status_code=202)
    def place(customer: str, session: Annotated[Session, Depends(sessions)], *, refuse: bool = False) -> Order:
        order = Order(customer=customer)
        session.add(order)
        session.flush()
        queue.enqueue(session, channel=customer, payload=order.id)
        if refuse:
            raise Refused
        session.commit()
        session.refresh(order)
        return order

    @app.get("/orders/{number}")
    def show(number: int, session: Annotated[Session, Depends(sessions)]) -> Order:
        return session.exec(select(Order).where(Order.id == number)).one()

    return app


async def test_requests_and_a_worker(url: URL, look: Look) -> None:
    """What a route commits is confirmed by the worker; of one that raises nothing is left, neither row nor message."""
    engine, queue = create_engine(url), Queue("mails")
    SQLModel.metadata.create_all(engine, [SQLModel.metadata.tables["shop_order"]])
    new_session = sessionmaker(engine, class_=Session)

    @queue.handler
    def confirm(delivery: Delivery, session: Session) -> None:
        session.exec(select(Order).where(Order.id == delivery.payload)).one().confirmed = True

    transport = ASGITransport(_application(new_session, queue), raise_app_exceptions=False)
    async with AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.post("/orders/mallory?refuse=1")).status_code == 500
        assert look(queue) == ([], 0)
        created = await client.post("/orders/alice")
        assert created.status_code == 202
        assert look(queue) == ([("alice", False)], 1)

        Worker(engine, queue, concurrency=1, session_factory=new_session).run(drain=True)
        assert (await client.get(f"/orders/{created.json()['id']}")).json()["confirmed"] is True
    assert look(queue) == ([("alice", True)], 0)
    engine.dispose()
