"""Look-ups in a large queue: each page of messages, and a message with each reason of its wait."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, make_url

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.values import Reason
from tests.bench.figures import Figure
from tests.bench.processor_time import seconds_of_both

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue import Delivery
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_QUEUE = Queue("bench", schema="fairqueue")
_HOUR = timedelta(hours=1)
_CHANNELS = 1_000
_MESSAGES = {True: 10_000_000, False: 100_000}
_ROUNDS = 40
_REACH_SECONDS = 0.05


def test_pages_and_reasons(stage: Stage, report: Report, *, full: bool) -> None:
    """The p95 of each page of messages, and of a message with each reason, is below 50 ms of processor time."""
    messages = int(os.environ.get("FAIRQUEUE_LOOKUP_MESSAGES", _MESSAGES[full]))
    filled = stage.fill("fair", channels=_CHANNELS, messages=messages)
    with stage.clone(filled) as conninfo:
        engine = create_engine(make_url(conninfo).set(drivername="postgresql+psycopg"))
        try:
            reasons = _reasons(engine)
            pages = _pages(engine, messages)
        finally:
            engine.dispose()
    stage.drop(filled)
    assert reasons.keys() == {*Reason}
    for what, seconds in {**{f"the reason {reason}": found for reason, found in reasons.items()}, **pages}.items():
        p95 = sorted(seconds)[ceil(len(seconds) * 0.95) - 1]
        name = f"{what}, {messages:,} messages, processor time of client and server, p95"
        report.add(Figure(name, "ms", [p95 * 1000], [_REACH_SECONDS * 1000], "50 ms", 1.0, "less"))


def _pages(engine: Engine, messages: int) -> dict[str, list[float]]:
    """The seconds of pages of 100 by what is asked for, in channels and from messages by chance."""
    chance = random.Random(3)  # noqa: S311 - which ones are asked for
    took: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        channel = f"channel-{chance.randint(1, _CHANNELS)}"
        middle = f"4.0.{chance.randint(1, messages)}"
        page = partial(_QUEUE.messages, engine)
        calls: dict[str, Callable[[], object]] = {
            "a page of the queue": partial(page, after=middle),
            "a page of a channel": partial(page, channel=channel),
            "a page of a kind": partial(page, kind="default", after=middle),
            "a page of a kind that is not there": partial(page, kind="x", after=middle),
            "a message by a key": partial(_QUEUE.message, engine, channel=channel, key="none"),
            "a page of the queue, leased": partial(page, state="leased"),
            "a page of the queue, ready": partial(page, state="ready", after=middle),
            "a page of the queue, scheduled": partial(page, state="scheduled", after=middle),
            "a page of a channel, leased": partial(page, channel=channel, state="leased"),
            "a page of a channel, ready": partial(page, channel=channel, state="ready"),
            "a page of a channel, scheduled": partial(page, channel=channel, state="scheduled"),
        }
        for name, call in calls.items():
            took.setdefault(name, []).append(seconds_of_both(engine, call))
    return took


def _reasons(engine: Engine) -> dict[Reason, list[float]]:
    """The seconds of a message by the reason of its wait, each produced on purpose."""
    took: dict[Reason, list[float]] = {}

    def look(message_id: int | None, expected: Reason) -> None:
        for _ in range(_ROUNDS):
            found = []
            seconds = seconds_of_both(engine, lambda: found.append(_QUEUE.message(engine, message_id)))  # noqa: B023
            assert found[0] is not None
            assert found[0].wait is not None
            assert found[0].wait.reason is expected, (found[0].wait, expected)
            took.setdefault(expected, []).append(seconds)

    _, two, scheduled = (
        receipt.message_id
        for receipt in _QUEUE.enqueue_many(
            engine, [Enqueue(channel="waits", payload=1), *[Enqueue(channel="waits", payload=n, delay=d) for n, d in
                     ((2, None), (3, _HOUR))]]
        )
    )  # fmt: skip
    look(two, Reason.NO_CONSUMER)
    look(scheduled, Reason.SCHEDULED)
    _QUEUE.configure_channel(engine, "rated", rate="1/h, burst 1")
    _, rated = (
        receipt.message_id
        for receipt in _QUEUE.enqueue_many(engine, [Enqueue(channel="rated", payload=number) for number in (1, 2)])
    )
    others: list[Delivery] = []
    while not all(list(_QUEUE.messages(engine, channel=name, state="leased")) for name in ("waits", "rated")):
        found = _QUEUE.dequeue(engine, limit=100, lease=_HOUR)
        others += [each for each in found if each.channel not in {"waits", "rated"}]
    # What is left is a small part, of which it has more than its share.
    _QUEUE.complete(engine, others[: len(others) // 2])
    [late] = _QUEUE.enqueue_many(engine, [Enqueue(channel="late", payload=1)])
    look(late.message_id, Reason.TURN)
    look(two, Reason.CAPACITY)
    _QUEUE.configure_channel(engine, "waits", max_concurrency=1)
    look(two, Reason.OWN_LIMIT)
    look(rated, Reason.RATE)
    _QUEUE.pause(engine, "late")
    look(late.message_id, Reason.PAUSED)
    _QUEUE.resume(engine, "late")
    _QUEUE.pause(engine)
    look(late.message_id, Reason.QUEUE_PAUSED)
    _QUEUE.resume(engine)
    _QUEUE.configure(engine, max_concurrency=1)
    look(late.message_id, Reason.QUEUE_LIMIT)
    _QUEUE.configure(engine, max_concurrency=None)
    _QUEUE.configure_limit(engine, "api", max_concurrency=1)
    _QUEUE.configure(engine, limits=["api"])
    look(late.message_id, Reason.SHARED_LIMIT)
    _QUEUE.configure_limit(engine, "api", max_concurrency=None, rate="1/h, burst 1")
    _take_the_rate(engine)
    look(late.message_id, Reason.SHARED_RATE)
    _QUEUE.configure(engine, limits=[], rate="1/h, burst 1")
    _take_the_rate(engine)
    look(late.message_id, Reason.QUEUE_RATE)
    _QUEUE.configure(engine, rate=None)
    return took


def _take_the_rate(engine: Engine) -> None:
    """Let nothing be left of what a rate allows at once, without the message that is looked at."""
    _QUEUE.pause(engine, "late")
    _QUEUE.dequeue(engine, limit=1, lease=_HOUR)
    _QUEUE.resume(engine, "late")
