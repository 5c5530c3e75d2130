"""A process that runs schedules as a worker does, until it is killed."""

import contextlib
import threading
from dataclasses import replace
from multiprocessing.connection import Connection

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import Queue, Worker
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.duties import Schedules
from sqlalchemy_fairqueue.worker.leases import ServedQueue

QUEUE = "documents"


def main(url: str, ready: Connection) -> None:
    """Poll schedules again and again, without a pause, on two connections."""
    queue = Queue(QUEUE)
    options = Worker(create_engine(url), queue)._options
    options = replace(options, timings=replace(options.timings, schedules_at_once=50, slots_at_once=7))
    served = ServedQueue(queue, options, {})
    schedules = Schedules(DedicatedConnection(options), [served], options)
    pause = threading.Event()
    ready.send(None)
    while True:
        # Without a server, as a worker's duties do: the next poll comes.
        with contextlib.suppress(DBAPIError):
            schedules.poll()
        pause.wait(0.02)
