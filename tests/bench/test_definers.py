"""Functions with the rights of their owner beside the same ones with the rights of their caller."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from tests.bench.figures import Figure
from tests.bench.processor_time import server_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

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
_SLICES = 30


def _messages(count: int) -> list[Enqueue]:
    return [Enqueue(channel=f"c{number % 100}", payload={"n": number}, kind="parse") for number in range(count)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", [1, 100, 1_000])
def test_definers_beside_invokers(stage: Stage, report: Report, size: int, *, full: bool) -> None:
    """Rights of the owner and a pinned search_path take at most 3 % of the server's processor time of any call.

    Two databases in turn, by slices of some calls: what else the machine does meanwhile comes to both.
    """
    times = max(1, (200 if full else 50) // size)
    messages = _messages(size)
    filled = stage.fill("fair", channels=1, messages=1)
    with stage.clone(filled) as definer, stage.clone(filled) as invoker:
        engines = {
            side: create_engine(make_url(conninfo).set(drivername="postgresql+psycopg"))
            for side, conninfo in (("definer", definer), ("invoker", invoker))
        }
        with engines["invoker"].begin() as connection:
            for function in connection.scalars(text(_DEFINERS)).all():
                connection.execute(text(_INVOKER.format(function)))

        def enqueue(engine: Engine) -> None:
            with Session(engine) as session, session.begin():
                _QUEUE.enqueue_many(session, messages)

        def work(engine: Engine) -> None:
            _QUEUE.complete(engine, _QUEUE.dequeue(engine, limit=size, lease=_HOUR))

        spent: dict[tuple[str, str], list[float]] = {}
        for number in range(-2, _SLICES):
            for call in (enqueue, work):
                for side in sorted(engines, reverse=bool(number % 2)):
                    took = _server_time(engines[side], call, times) / times / size
                    # First channels are made, statements prepared and plans made.
                    if number >= 0:
                        spent.setdefault((call.__name__, side), []).append(took)
        for engine in engines.values():
            engine.dispose()
    stage.drop(filled)
    for step, name in (("enqueue", "enqueue"), ("work", "dequeue and complete")):
        what = f"{name} of {size:,}, processor time of the server a message, functions with the rights of their owner"
        report.add(
            Figure(what, "us", spent[step, "definer"], spent[step, "invoker"], "rights of the caller", _REACH, "less")
        )


def _server_time(engine: Engine, call: Callable[[Engine], None], times: int) -> float:
    """The processor time of the server for so many calls, in microseconds."""
    before = server_seconds(engine)
    for _ in range(times):
        call(engine)
    return (server_seconds(engine) - before) * 1e6
