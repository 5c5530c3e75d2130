"""Workers whose server is away: every part of a worker backs off."""

import threading
from math import log2
from time import monotonic

from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue import Delivery, Queue, Worker
from sqlalchemy_fairqueue.worker.timings import Timings
from tests.chaos.proxy import Proxy
from tests.fixtures.database import Database
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, is_empty, retimed, send, until

# Dequeues, lookups of unanswered dequeues, settlements, heartbeats, signals, the listener; and the polls that the
# listener asks for when it fails.
_PARTS = 7
_MESSAGES = 50
_TIMINGS = {**MANY_HEARTBEATS, "hear_after": 0.2, "unanswered_after": 0.1}


def _most(seconds: float) -> float:
    """The most attempts in so many seconds: the wait of a part doubles each time, and a wait is halved at most."""
    shortest = Timings().backoff_first / 2
    return _PARTS * (2 + log2(seconds / shortest + 1))


class _Handlers:
    """Handlers that are at work when the server goes away, and finish one after the other while it is away."""

    def __init__(self, queue: Queue) -> None:
        self.at_work = 0
        self.finished = 0
        self._numbers = iter(range(_MESSAGES))
        self._lock = threading.Lock()
        self.away = threading.Event()
        queue.handler("thread")(self._handle)

    def _handle(self, _: Delivery) -> None:
        with self._lock:
            number = next(self._numbers)
            self.at_work += 1
        self.away.wait()
        threading.Event().wait(number / _MESSAGES)
        self.finished += 1


def test_every_part_backs_off(
    queue: Queue, engine: Engine, database: Database, proxy: Proxy, seen: list[object]
) -> None:
    """A worker that loses its server while it is at work connects a few times a second, whatever finishes meanwhile.

    What it had in hand is completed when the server is back, once, and it goes on.
    """
    handlers = _Handlers(queue)
    own = create_engine(proxy.url)
    worker = Worker(own, queue, lease=LONG_LEASE, concurrency=_MESSAGES + 1, housekeeping=False)
    with retimed(worker, **_TIMINGS):
        send(engine, queue, *range(_MESSAGES), kind="thread")
        until(lambda: handlers.at_work == _MESSAGES, "all are at work")
        began = monotonic()
        proxy.go_away()
        handlers.away.set()
        until(lambda: handlers.finished == _MESSAGES, "all have finished")
        until(lambda: worker.stats.failures > 2 * _PARTS, "all parts have failed")
        assert proxy.refused <= _most(monotonic() - began)
        proxy.come_back()
        until(lambda: is_empty(database), "all are settled")
        send(engine, queue, 1)
        until(lambda: seen == [1], "it goes on")
    assert (handlers.at_work, worker.stats.lost) == (_MESSAGES, 0)
    own.dispose()
