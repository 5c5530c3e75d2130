"""Messages of tests, put into queues by the library's own verbs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue
from tests.factories import EnqueueFactory

ODD_NAMES = ["[red]bold[/]", "two\nlines", "\x1b[2Jclear", "a  b", "'; drop table fq_message; --", "köln", "x" * 300]
"""Names that markup, terminals, tables and SQL might take for something else."""

QUEUE = Queue("documents")

Findings = Callable[..., list[dict[str, Any]]]
Repair = Callable[[str], None]


def enqueue(engine: Engine, *channels: str, queue: Queue = QUEUE, **fields: object) -> list[int]:
    """One message a channel; their ids."""
    with Session(engine) as session, session.begin():
        receipts = queue.enqueue_many(
            session, [EnqueueFactory.build(channel=channel, **fields) for channel in channels]
        )
    return [receipt.message_id or 0 for receipt in receipts]


def enqueue_group(
    engine: Engine, *channels: str, queue: Queue = QUEUE, then: str | None = None, **fields: object
) -> str:
    """A group of one message a channel, which one of channel *then* follows; its id."""
    follows = EnqueueFactory.build(channel=then, kind="report") if then else None
    with Session(engine) as session, session.begin(), queue.group(session, then=follows) as group:
        group.enqueue_many([EnqueueFactory.build(channel=channel, **fields) for channel in channels])
    return str(group.id)


def lease(engine: Engine, limit: int = 100, queue: Queue = QUEUE) -> list[Delivery]:
    """Take messages, as a consumer that goes on holding them."""
    return queue.dequeue(engine, limit=limit, lease=timedelta(minutes=5))


def bury(engine: Engine, *channels: str, queue: Queue = QUEUE, **fields: object) -> list[int]:
    """One dead letter a channel; their ids, in the order of their deaths."""
    ids = enqueue(engine, *channels, queue=queue, **fields)
    deliveries = lease(engine, len(ids), queue=queue)
    queue.bury(engine, deliveries, reason="cannot be read", error="Traceback ...\nValueError: no such page")
    return ids


def statements(engine: Engine) -> list[str]:
    """What the engine sends to the database from now on."""
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
    return sent


def levels(found: list[dict[str, Any]]) -> list[str]:
    """The levels of findings."""
    return [one["level"] for one in found]
