"""Bulk enqueues, deliveries and completions of members of groups beside those of other messages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from tests.bench.figures import Figure
from tests.bench.processor_time import seconds_of_both

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_QUEUE = Queue("bench", schema="fairqueue")
_HOUR = timedelta(hours=1)
_REACH = 0.9
_BATCH = 100
_FORGET = "truncate fairqueue.fq_message, fairqueue.fq_signal, fairqueue.fq_group, fairqueue.fq_group_note"


def _messages(count: int) -> list[Enqueue]:
    return [Enqueue(channel=f"c{number % 100}", payload={"n": number}, kind="parse") for number in range(count)]


def _enqueue(engine: Engine, messages: list[Enqueue], side: str) -> None:
    with Session(engine) as session, session.begin():
        if side == "others":
            _QUEUE.enqueue_many(session, messages)
            return
        with _QUEUE.group(session, then=Enqueue(channel="reports", payload=1, kind="report", delay=_HOUR)) as group:
            group.enqueue_many(messages)


def _drain(engine: Engine, count: int) -> None:
    """Take and complete all, and fold what that noted."""
    while count:
        taken = _QUEUE.dequeue(engine, limit=_BATCH, lease=_HOUR)
        _QUEUE.complete(engine, taken)
        count -= len(taken)
    with engine.begin() as connection:
        connection.execute(text("select * from fairqueue.fq_fold_groups(10000, 100, false)"))


@pytest.mark.parametrize("count", [1_000, 20_000])
def test_members_beside_others(stage: Stage, report: Report, alternate: Alternate, count: int, *, full: bool) -> None:
    """The processor time of a message without a group is at least 0.9 of that of a member, of both sides together."""
    times = (20_000 if full else 10_000) * 2 // count or 1
    messages = _messages(count)
    spent: dict[tuple[str, str], list[float]] = {}
    filled = stage.fill("fair", channels=1, messages=1)
    with stage.clone(filled) as conninfo:
        engine = create_engine(make_url(conninfo).set(drivername="postgresql+psycopg"))
        _drain(engine, 1)

        def measure(side: str) -> None:
            enqueues = drains = 0.0
            for _ in range(times):
                enqueues += seconds_of_both(engine, lambda: _enqueue(engine, messages, side))
                drains += seconds_of_both(engine, lambda: _drain(engine, count))
            spent.setdefault(("enqueue", side), []).append(enqueues / times / count * 1e6)
            spent.setdefault(("dequeue, complete and fold", side), []).append(drains / times / count * 1e6)
            with engine.begin() as connection:
                connection.execute(text(_FORGET))

        # What is done once: channels are made, statements prepared.
        for side in ("members", "others"):
            _enqueue(engine, messages, side)
            _drain(engine, count)
        alternate(measure, ("members", "others"))
        engine.dispose()
    stage.drop(filled)
    for side in ("members", "others"):
        parts = zip(spent["enqueue", side], spent["dequeue, complete and fold", side], strict=True)
        spent["all", side] = [sum(part) for part in parts]
    for step in ("enqueue", "dequeue, complete and fold", "all"):
        what = f"{step} of {count:,} members of a group, processor time of client and server a message"
        members, others = spent[step, "members"], spent[step, "others"]
        report.add(Figure(what, "us", members, others, "without a group", 1 / _REACH, "less"))
