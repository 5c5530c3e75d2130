"""Why messages wait is told right whenever one asks, while handlers of a worker end all the time."""

from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Delivery, Queue
from sqlalchemy_fairqueue.values.reports import Reason
from tests.worker.conftest import StartWorker
from tests.worker.helpers import send, until

_SAMPLES = 200
_CASES: dict[Reason, dict[str, Any]] = {
    Reason.OWN_LIMIT: {"max_concurrency": 2},
    Reason.RATE: {"rate": "20/s"},
    Reason.QUEUE_LIMIT: {"max_concurrency": 2},
    Reason.QUEUE_RATE: {"rate": "20/s"},
    Reason.SHARED_LIMIT: {"max_concurrency": 2},
    Reason.SHARED_RATE: {"rate": "20/s"},
    Reason.TURN: {"weight": 1000},
}


@pytest.mark.whole
@pytest.mark.parametrize("reason", _CASES)
def test_samples(queue: Queue, engine: Engine, start: StartWorker, reason: Reason) -> None:
    """While a worker of eight threads is served 20 ms messages, 95 % of 200 samples name what holds the last one."""
    other, stopped = Queue("summaries"), Event()
    match reason:
        case Reason.OWN_LIMIT | Reason.RATE:
            queue.configure_channel(engine, "a", **_CASES[reason])
        case Reason.QUEUE_LIMIT | Reason.QUEUE_RATE:
            queue.configure(engine, **_CASES[reason])
        case Reason.SHARED_LIMIT | Reason.SHARED_RATE:
            queue.limits.configure(engine, "api", **_CASES[reason])
            for each in (queue, other):
                each.configure(engine, limits=["api"])
        case _:
            queue.configure_channel(engine, "b", **_CASES[reason])
            send(engine, queue, *range(5000), channel="b")

    for each in (queue, other):

        @each.handler
        def wait(_: Delivery) -> None:
            stopped.wait(0.02)

        # Each queue has a worker of its own: what one leaves to the other, the other takes when it looks next.
        send(engine, each, *range(2000), channel="a")
        start(each, concurrency=8)
    [message_id] = send(engine, queue, 0, channel="a")
    until(lambda: any(one.leased for one in queue.admin.consumers(engine)), "the worker works")
    found = [queue.message(engine, message_id) for _ in range(_SAMPLES)]
    stopped.set()
    reasons = [one.wait.reason for one in found if one is not None and one.wait is not None]
    assert reasons.count(reason) >= 0.95 * _SAMPLES, {each: reasons.count(each) for each in reasons}
