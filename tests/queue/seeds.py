"""Messages that tests begin with and look at, and what must hold of those that wait."""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.reports import MessageDetails
from tests.model.invariants import HELD

WRONG = HELD.replace("(select last_value from public.test_clock)", "fq_now()")
"""Query for messages that wait and whose position, state or count is wrong."""


def add(queue: Queue, engine: Engine, *payloads: object, **fields: Any) -> list[int]:
    """Enqueue one message a payload in one transaction, to channel a unless told otherwise; their ids."""
    return _send(queue, engine, [Enqueue(**{"channel": "a", "payload": one, **fields}) for one in payloads])


def seed(queue: Queue, engine: Engine, *channels: str, **fields: Any) -> list[int]:
    """Enqueue one message a channel in one transaction, with its name as payload; their ids."""
    return _send(queue, engine, [Enqueue(**{"channel": one, "payload": one, **fields}) for one in channels])


def _send(queue: Queue, engine: Engine, messages: list[Enqueue]) -> list[int]:
    with Session(engine) as session:
        receipts = queue.enqueue_many(session, messages)
        session.commit()
    return [receipt.message_id or 0 for receipt in receipts]


def message(queue: Queue, engine: Engine, message_id: int | None = None, **name: str) -> MessageDetails:
    """A message that is there, by its id or its name."""
    found = queue.message(engine, message_id, **name)
    assert found is not None
    return found
