"""Flask-SQLAlchemy: the session of the request, on the drivers of sync applications."""

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import URL
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from tests.frameworks.conftest import Look
from tests.frameworks.shop import Base, Order, Refused


def _application(url: URL) -> tuple[Flask, SQLAlchemy, Queue]:
    app, db, queue = Flask(__name__), SQLAlchemy(model_class=Base), Queue("mails")
    app.config["SQLALCHEMY_DATABASE_URI"] = url
    db.init_app(app)

    @app.post("/orders/<customer>")
    def place(customer: str) -> tuple[dict[str, int], int]:
        order = Order(customer=customer)
        db.session.add(order)
        db.session.flush()
        queue.enqueue(db.session, channel=customer, payload=order.id)
        if "refuse" in request.args:
            raise Refused
        db.session.commit()
        return {"id": order.id}, 202

    @app.get("/orders/<int:number>")
    def show(number: int) -> dict[str, bool]:
        return {"confirmed": db.session.get_one(Order, number).confirmed}

    @queue.handler
    def confirm(delivery: Delivery, session: Session) -> None:
        session.get_one(Order, delivery.payload).confirmed = True

    return app, db, queue


def test_requests_and_a_worker(url: URL, look: Look) -> None:
    """What a view commits is confirmed by the worker; of one that raises nothing is left, neither row nor message."""
    app, db, queue = _application(url)
    with app.app_context():
        Base.metadata.create_all(db.engine)
    client = app.test_client()
    assert client.post("/orders/mallory?refuse=1").status_code == 500
    assert look(queue) == ([], 0)
    created = client.post("/orders/alice")
    assert created.status_code == 202
    assert look(queue) == ([("alice", False)], 1)

    with app.app_context():
        Worker(db.engine, queue, concurrency=1).run(drain=True)
    assert client.get(f"/orders/{created.get_json()['id']}").get_json() == {"confirmed": True}
    assert look(queue) == ([("alice", True)], 0)
    with app.app_context():
        db.engine.dispose()
