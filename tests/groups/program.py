"""A worker whose members add members, until it is killed."""

import threading
from datetime import timedelta
from multiprocessing.connection import Connection

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Bury, Context, Queue, Worker
from tests.worker.helpers import retimed

queue = Queue("documents", check_kinds=False)


@queue.job
def work(context: Context, session: Session, *, depth: int) -> None:
    """Add two members a level; one in eight fails."""
    assert context.group is not None
    if depth:
        context.group.enqueue_many(work.prepare("a", depth=depth - 1) for _ in range(2))
        session.flush()
    elif context.delivery.message_id % 8 == 0:
        raise Bury("unlucky")


def main(url: str, ready: Connection) -> None:
    """Work."""
    worker = Worker(create_engine(url), queue, lease=timedelta(seconds=1), concurrency=4)
    with retimed(worker, groups_every=0.02):
        ready.send(None)
        threading.Event().wait()
