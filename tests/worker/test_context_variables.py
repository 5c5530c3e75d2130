"""Context variables that handlers set: the tenant of a log, a trace."""

import threading
from contextvars import ContextVar

from sqlalchemy import Engine

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from tests.worker.helpers import send, until

_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def test_they_are_not_left_for_the_next_message(queue: Queue, engine: Engine) -> None:
    """Of two messages that one thread handles, the second does not see what the handler of the first has set."""
    seen = []

    @queue.handler
    def handle(delivery: Delivery) -> None:
        seen.append((threading.get_ident(), _tenant.get()))
        _tenant.set(delivery.channel)

    send(engine, queue, 1, 2)
    with Worker(engine, queue, concurrency=1, housekeeping=False) as worker:
        until(lambda: worker.stats.completed == 2, "both are done")
    assert len({thread for thread, _ in seen}) == 1
    assert [tenant for _, tenant in seen] == ["nobody"] * 2
