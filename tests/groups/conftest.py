"""Fixtures of the tests of groups, and what they share."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Enqueue, Queue
from sqlalchemy_fairqueue.reports import GroupStatus
from sqlalchemy_fairqueue.testing import make_context
from tests.fixtures.database import Database

Make = Callable[..., UUID]
REPORT = Enqueue(channel="reports", payload="done", kind="report")


@pytest.fixture
def queue() -> Queue:
    """A queue."""
    return Queue("documents")


@pytest.fixture
def make(engine: Engine, queue: Queue) -> Make:
    """Make a group of messages with these payloads, followed by a message of kind "report" or, of failures, "alarm"."""

    def made(*payloads: object, then: Enqueue | None = REPORT, on_failure: bool = False, **words: Any) -> UUID:
        alarm = Enqueue(channel="reports", payload="failed", kind="alarm") if on_failure else None
        messages = [Enqueue(**{"channel": "a", "payload": each, **words}) for each in payloads]
        with Session(engine) as session:
            with queue.group(session, then=then, on_failure=alarm) as group:
                group.enqueue_many(messages)
            session.commit()
        return group.id

    return made


def fold(database: Database, limit: int = 10_000) -> None:
    """Do what workers do each second, until nothing is left."""
    while database.rows(f"select from fq_fold_groups({limit}, 100, false) where more"):
        pass


def counts(status: GroupStatus) -> tuple[int, int, int, int, int]:
    """Total, done, failed, cancelled, pending."""
    return status.total, status.done, status.failed, status.cancelled, status.pending


def followups(database: Database) -> list[str]:
    """The kinds of the messages that followed groups, in order."""
    rows = database.rows("select kind from fq_message where kind in ('report', 'alarm') order by id")
    return [row.kind for row in rows]


def add(session: Session, queue: Queue, delivery: Delivery, *payloads: object) -> None:
    """Add members as the handler of a delivery does."""
    group = make_context(delivery, queue=queue).with_session(session).group
    assert group is not None
    group.enqueue_many(Enqueue(channel="a", payload=each) for each in payloads)
