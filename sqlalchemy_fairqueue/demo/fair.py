"""The app on the fair queue: each customer is a channel, and workers take channels in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, Select, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from sqlalchemy_fairqueue.demo.business import LEASE, Upload, parse
from sqlalchemy_fairqueue.models import Lease, Message

queue = Queue("documents")


def line_up(session: Session, upload: Upload) -> None:
    queue.enqueue(session, channel=upload.customer, payload={"upload": upload.key}, kind="parse")


@queue.handler("parse")
def parse_upload(delivery: Delivery, session: Session) -> None:
    """Parse a file, and add the result to the session.

    The worker commits the result together with the completion of the delivery. If its process dies before that, there
    is neither result nor completion, and another worker gets the message when the lease ends.
    """
    session.add(parse(session.get_one(Upload, delivery.payload["upload"])))


def run(engine: Engine, name: str, ended: Callable[[float | None], bool]) -> None:
    """Parse files in this process, as a worker, until the run of the demo has ended.

    ``ended(seconds)`` waits at most *seconds* and returns whether the run has ended. ``ended(None)`` waits for the end.
    """
    with Worker(engine, queue, concurrency=2, lease=LEASE, name=name):
        ended(None)


def held(worker: str) -> Select[Any]:
    """Select the keys of the uploads that a worker has leased, including prefetched ones."""
    leased = select(Message.payload["upload"].astext).join(Lease, Lease.id == Message.lease_id)
    return leased.where(Lease.consumer == worker)
