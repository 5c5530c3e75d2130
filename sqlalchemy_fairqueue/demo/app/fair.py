"""The app on the fair queue: each customer is a channel, and workers take channels in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from sqlalchemy_fairqueue.demo.app.models import LEASE, Upload
from sqlalchemy_fairqueue.demo.app.parsing import parse
from sqlalchemy_fairqueue.models import DeadLetter, Lease, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlalchemy import Engine

queue = Queue("documents")


def prepare(session: Session) -> None:
    """Have the history recorded: it tells at the end who had which message when."""
    queue.configure(session, history=True)


def upload(engine: Engine, customer_id: int, files: Mapping[str, str]) -> None:
    """Store a customer's files, key to path, and ask for each to be parsed: all of it is committed, or nothing."""
    with Session(engine) as session, session.begin():
        for key, path in files.items():
            session.add(Upload(key=key, customer_id=customer_id, path=path))
            queue.enqueue(session, channel=f"customer-{customer_id}", payload={"upload": key}, kind="parse")


@queue.handler("parse")
def parse_upload(delivery: Delivery, session: Session) -> None:
    """Parse a file.

    The worker commits the result together with the completion of the delivery. If its process dies before, neither is
    there, and another worker gets the message when the lease ends.
    """
    session.add(parse(session.get_one(Upload, delivery.payload["upload"])))


def run(engine: Engine, name: str, ended: Callable[[float | None], bool]) -> None:
    """The work of a worker process: parse files until *ended*, which is given the seconds it may wait."""
    with Worker(engine, queue, concurrency=2, lease=LEASE, name=name):
        ended(None)


def held(session: Session, worker: str) -> Iterable[str]:
    """The keys of the uploads that are leased to a worker, prefetched ones included."""
    leased = select(Message.payload["upload"].astext).join(Lease, Lease.id == Message.lease_id)
    return session.scalars(leased.where(Lease.consumer == worker))


def waiting(session: Session) -> int:
    """The number of messages left, dead letters included."""
    return sum(session.scalars(select(func.count()).select_from(model)).one() for model in (Message, DeadLetter))
