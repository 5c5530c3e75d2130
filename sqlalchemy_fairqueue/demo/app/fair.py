"""The app on the fair queue: each customer is a channel, and workers take channels in turn."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.demo.app.models import Upload
from sqlalchemy_fairqueue.demo.app.parsing import parse
from sqlalchemy_fairqueue.models import DeadLetter, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Engine

queue = Queue("documents")


def upload(engine: Engine, customer_id: int, files: Mapping[str, str]) -> None:
    """Store a customer's files, key to path, and ask for each to be parsed: all of it is committed, or nothing."""
    with Session(engine) as session, session.begin():
        for key, path in files.items():
            session.add(Upload(key=key, customer_id=customer_id, path=path))
            queue.enqueue(session, channel=f"customer-{customer_id}", payload={"upload": key}, kind="parse")


def work(engine: Engine) -> int:
    """Parse the next few files, and tell how many there were.

    Each result is committed together with the completion of its delivery. If a worker dies before, neither is there,
    and another worker gets the message when the lease ends.
    """
    deliveries = queue.dequeue(engine, limit=5, lease=timedelta(seconds=30))
    for delivery in deliveries:
        with Session(engine) as session, session.begin():
            session.add(parse(session.get_one(Upload, delivery.payload["upload"])))
            queue.complete(session, delivery)
    return len(deliveries)


def waiting(session: Session) -> int:
    """How many messages are left, dead letters included."""
    return sum(session.scalars(select(func.count()).select_from(model)).one() for model in (Message, DeadLetter))
