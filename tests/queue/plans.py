"""Steps of the tests of plans."""

from datetime import timedelta

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.values.messages import Delivery

HOUR = timedelta(hours=1)


def seed(engine: Engine, queue: Queue, *channels: str, count: int = 10) -> None:
    """Enqueue so many messages in each channel."""
    with Session(engine) as session:
        for channel in channels:
            for number in range(count):
                queue.enqueue(session, channel=channel, payload=number)
        session.commit()


def take(engine: Engine, queue: Queue, limit: int = 1000) -> list[Delivery]:
    """Dequeue, with a lease longer than the tests' clock goes on."""
    return queue.dequeue(engine, limit=limit, lease=10 * HOUR)


def change_unseen(queue: Queue, engine: Engine, name: str, **changes: object) -> None:
    """Change a plan in a transaction, so that the call itself brings it to no channel."""
    with Session(engine) as session:
        queue.plans.configure(session, name, **changes)  # type: ignore[call-overload]
        session.commit()
