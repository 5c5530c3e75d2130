"""Steps that tests of keys with a period have in common."""

from datetime import timedelta
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue, Receipt

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def enqueue_key(queue: Queue, engine: Engine, payload: object = 1, /, **words: Any) -> Receipt:
    """Enqueue to channel a under the key k, taken for an hour, unless told otherwise."""
    with Session(engine) as session:
        options = {"channel": "a", "key": "k", "unique_for": HOUR, **words}
        receipt = queue.enqueue(session, payload=payload, **options)
        session.commit()
    return receipt


def complete_all(queue: Queue, engine: Engine) -> None:
    """Dequeue what is ready, and complete it."""
    queue.complete(engine, queue.dequeue(engine, limit=10))
