"""Backoff of a worker while the database is away: its waits and its log lines."""

import logging
from time import monotonic
from typing import Any

import pytest

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.worker.fetcher import Fetcher
from sqlalchemy_fairqueue.worker.timings import Backoff, Timings
from tests.worker.conftest import StartWorker
from tests.worker.helpers import until


def test_waits_are_bounded() -> None:
    """However many failures there were, the next attempt comes within the longest wait."""
    backoff = Backoff("do it", "me", monotonic, Timings(), cap=0.5)
    waits = [backoff.failed(ValueError()) for _ in range(20)]
    assert 0 < min(waits) <= max(waits) <= 0.5


def test_its_end_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """What works on says nothing more, and the next backoff is another one."""
    backoff = Backoff("do it", "me", monotonic, Timings())
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        for _ in range(2):
            backoff.failed(ValueError())
            for _ in range(3):
                backoff.succeeded()
    assert ["again, after" in record.getMessage() for record in caplog.records] == [False, True] * 2
    assert all("1 failures" in record.getMessage() for record in caplog.records[1::2])


def test_a_failing_dequeue_is_not_hammered(queue: Queue, start: StartWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each failure the next poll is put off."""
    put_off: list[bool] = []
    original = Fetcher._take

    def take(fetcher: Fetcher, due: list[Any], room: int) -> None:
        before = [served.polls.next_at for served in due]
        original(fetcher, due, room)
        put_off.extend(served.polls.next_at > at for served, at in zip(due, before, strict=True))

    def refuse(*_: object) -> None:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(Fetcher, "_take", take)
    monkeypatch.setattr(Consumer, "dequeue", refuse)
    queue.handler()(lambda _: None)
    worker = start(queue, listen=False)
    until(lambda: len(put_off) >= 3, "it has failed three times")
    assert all(put_off)
    assert worker.stats.failures >= 3
