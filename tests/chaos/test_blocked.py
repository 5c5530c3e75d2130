"""Handlers that block what the worker runs on for longer than the lease: what docs/workers.md says of it."""

import ctypes
import signal
import threading
from datetime import timedelta

from sqlalchemy import Engine

from sqlalchemy_fairqueue import Context, Delivery, Queue, Worker
from tests.chaos.books import Books
from tests.chaos.children import StartChild
from tests.chaos.conftest import Rescue
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import send, until


def test_a_blocked_interpreter_does_its_work_twice(
    books: Books, database: Database, child: StartChild, rescue: Rescue
) -> None:
    """A handler without session whose process stands still beyond the lease has worked twice, and is told so: the
    message is completed by whoever took it over, and the effect is counted twice.
    """
    books.send(1, "wide")
    frozen = child(stops=["working"], concurrency=1, lease=2.0)
    frozen.reaches("working")
    frozen.send(signal.SIGSTOP)
    other = rescue()
    books.until_done()
    other.stop()
    frozen.send(signal.SIGCONT)
    frozen.go()
    until(lambda: max(books.effects().values()) == 2, "the frozen one has gone on")
    assert database.value("select array_agg(sure order by started) from effect where kind = 'plain'") == [False, True]
    frozen.send(signal.SIGTERM)
    assert frozen.hear("stopped")["lost"] == 1
    books.check()


def test_a_blocked_interpreter_is_noticed_by_all_handlers(database: Database, engine: Engine) -> None:
    """A foreign call that keeps the GIL beyond the lease loses it for all handlers of the process, as each is told."""
    queue = Queue("blocking")
    begun: set[str] = set()
    lost: list[bool] = []
    at_work = threading.Barrier(2)

    @queue.handler()
    def block(delivery: Delivery, context: Context) -> None:
        if delivery.payload not in begun:
            begun.add(delivery.payload)
            at_work.wait(PATIENCE.total_seconds())
            if delivery.payload == "block":
                ctypes.PyDLL(None).usleep(900_000)
            until(lambda: context.lost, "it is told")
            lost.append(context.lost)

    send(engine, queue, "block", "wait")
    with Worker(engine, queue, lease=timedelta(milliseconds=500), housekeeping=False):
        until(lambda: database.value("select count(*) from fq_message") == 0, "they are done later")
    assert lost == [True, True]
