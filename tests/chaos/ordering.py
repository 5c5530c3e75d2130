"""A worker whose handlers claim the ordering keys of their messages, until it is killed."""

import logging
import threading
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from tests.chaos.business import AGAIN, NOW, fail

TABLE = """
create table claim (
  number bigint primary key, ordering_key text, started timestamptz not null, ended timestamptz not null
)
"""
"""What was handled: written by the transaction that completes the message."""

_CLAIM = text("insert into claim values (:number, :ordering_key, :started, clock_timestamp())")

queue = Queue("documents", max_attempts=1_000)


def payload(number: int, ordering_key: str | None, fails: int) -> dict[str, Any]:
    """A message: in the order of their numbers those of a key are added; so many attempts fail."""
    return {"number": number, "ordering_key": ordering_key, "fails": fails}


@queue.handler("claims", retry=AGAIN)
def claim(delivery: Delivery, session: Session) -> None:
    """Note from when until when the message was worked on, unless its transaction is rolled back."""
    asked = delivery.payload
    started = session.scalar(NOW)
    threading.Event().wait(0.002)
    session.execute(_CLAIM, asked | {"started": started})
    fail(delivery, asked["fails"])


def main(url: str, ready: Connection) -> None:
    """Work; of failures that were asked for nobody need hear."""
    logging.disable()
    with Worker(create_engine(url), queue, lease=timedelta(seconds=1), concurrency=4, housekeeping=False):
        ready.send(None)
        threading.Event().wait()
