"""Functions with the rights of their owner beside the same ones with the rights of their caller."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from tests.bench.figures import Figure

if TYPE_CHECKING:
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_QUEUE = Queue("bench", schema="fairqueue")
_HOUR = timedelta(hours=1)
_REACH = 1.03
_DEFINERS = """
select p.oid::regprocedure::text
from pg_proc p
where p.pronamespace = 'fairqueue'::regnamespace
  and p.prosecdef
"""
_INVOKER = "alter function {} security invoker reset search_path"
# Slices and the calls of each: many short ones, since what else the machine does is worth more than 3 % for a while.
_SLICES = {1: (300, 10), 100: (400, 1), 1_000: (80, 1)}
_FIRST = 20


class _Side:
    """One database: its engine has one connection, whose backend is measured."""

    def __init__(self, conninfo: str, messages: list[Enqueue]) -> None:
        url = make_url(conninfo).set(drivername="postgresql+psycopg")
        self.engine = create_engine(url, pool_size=1, max_overflow=0)
        self.messages = messages
        with self.engine.connect() as connection:
            backend = connection.scalar(text("select pg_backend_pid()"))
        self._schedule = Path(f"/proc/{backend}/schedstat")

    def give_up_rights(self) -> None:
        """Let all functions run with the rights of their caller."""
        with self.engine.begin() as connection:
            for function in connection.scalars(text(_DEFINERS)).all():
                connection.execute(text(_INVOKER.format(function)))

    def enqueue(self) -> None:
        with Session(self.engine) as session, session.begin():
            _QUEUE.enqueue_many(session, self.messages)

    def work(self) -> None:
        _QUEUE.complete(self.engine, _QUEUE.dequeue(self.engine, limit=len(self.messages), lease=_HOUR))

    def seconds(self, call: str, times: int) -> float:
        """The processor time of the backend for so many calls."""
        before = self._nanoseconds()
        for _ in range(times):
            getattr(self, call)()
        return (self._nanoseconds() - before) / 1e9

    def _nanoseconds(self) -> int:
        return int(self._schedule.read_text().split()[0])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", _SLICES)
def test_definers_beside_invokers(stage: Stage, report: Report, size: int, *, full: bool) -> None:
    """Rights of the owner and a pinned search_path take at most 3 % of the server's processor time of any call.

    Two databases in turn, by slices of some calls: what else the machine does meanwhile comes to both.
    """
    slices, times = _SLICES[size]
    messages = [Enqueue(channel=f"c{number % 100}", payload={"n": number}, kind="parse") for number in range(size)]
    spent: dict[tuple[str, str], list[float]] = {}
    filled = stage.fill("fair", channels=1, messages=1)
    with stage.clone(filled) as definer, stage.clone(filled) as invoker:
        sides = {"definer": _Side(definer, messages), "invoker": _Side(invoker, messages)}
        sides["invoker"].give_up_rights()
        # At first channels are made, statements prepared and plans made.
        for number in range(-_FIRST, slices * (3 if full else 1)):
            for call in ("enqueue", "work"):
                for name in sorted(sides, reverse=bool(number % 2)):
                    spent.setdefault((call, name), []).append(sides[name].seconds(call, times) / times / size * 1e6)
        for side in sides.values():
            side.engine.dispose()
    stage.drop(filled)
    for call, told in (("enqueue", "enqueue"), ("work", "dequeue and complete")):
        what = f"{told} of {size:,}, processor time of the server a message, functions with the rights of their owner"
        ours, theirs = (spent[call, name][_FIRST:] for name in ("definer", "invoker"))
        report.add(Figure(what, "us", ours, theirs, "rights of the caller", _REACH, "less"))
