"""An insert and an enqueue in a session's transaction, against the insert alone: by the network, and client time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from tests.bench.figures import Figure
from tests.fixtures.proxy import proxied
from tests.unit_of_work.business import Base, Upload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import URL

    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_WAY = 0.001
_SIDES = ("insert", "enqueue")
_QUEUE = Queue("documents", schema="fairqueue")


def _work(session: Session, side: str, number: int) -> None:
    session.add(Upload(name=f"{side} {time.monotonic_ns()} {number}"))
    if side == "enqueue":
        _QUEUE.enqueue(session, channel=f"tenant-{number % 100}", payload={"upload": number})


@contextlib.contextmanager
def _sync(url: URL, driver: str, times: int) -> Iterator[Callable[[str], None]]:
    engine = create_engine(url.set(drivername=f"postgresql+{driver}"), pool_size=1)

    def run(side: str) -> None:
        for number in range(times):
            with Session(engine) as session, session.begin():
                _work(session, side, number)

    yield run
    engine.dispose()


@contextlib.contextmanager
def _asyncio(url: URL, driver: str, times: int) -> Iterator[Callable[[str], None]]:
    engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"), pool_size=1)

    async def all_of(side: str) -> None:
        for number in range(times):
            async with AsyncSession(engine) as session, session.begin():
                await session.run_sync(_work, side, number)

    with asyncio.Runner() as runner:
        yield lambda side: runner.run(all_of(side))
        runner.run(engine.dispose())


@pytest.mark.parametrize(
    ("driver", "maker", "more"),
    [("psycopg", _sync, 0), ("psycopg", _asyncio, 0), ("psycopg2", _sync, 1), ("asyncpg", _asyncio, 1)],
)
def test_an_insert_and_an_enqueue(  # noqa: PLR0917 - fixtures
    stage: Stage,
    report: Report,
    alternate: Alternate,
    driver: str,
    maker: Callable[[URL, str, int], AbstractContextManager[Callable[[str], None]]],
    more: int,
    *,
    full: bool,
) -> None:
    """Where work travels with COMMIT, the enqueue costs no time on the network; else one round trip."""
    times = 400 if full else 50
    filled = stage.fill("fair", channels=1, messages=0)
    what = f"{driver}, {'Session' if maker is _sync else 'AsyncSession'}: insert and enqueue"
    with stage.clone(filled) as conninfo:
        url = make_url(conninfo).set(drivername="postgresql+psycopg")
        engine = create_engine(url)
        Base.metadata.create_all(engine)
        engine.dispose()
        walls: dict[str, list[float]] = {side: [] for side in _SIDES}
        cpus: dict[str, list[float]] = {side: [] for side in _SIDES}
        with proxied(url, _WAY) as proxy, maker(url, driver, times) as direct, maker(proxy.url, driver, times) as far:

            def measure(side: str) -> None:
                began = time.perf_counter()
                far(side)
                walls[side].append((time.perf_counter() - began) / times * 1e3)
                used = time.process_time()
                direct(side)
                cpus[side].append((time.process_time() - used) / times * 1e6)

            for side in _SIDES:
                far(side)
                direct(side)
            alternate(measure, _SIDES)
    stage.drop(filled)
    reach = None if more else 1.05
    report.add(
        Figure(f"{what}, 1 ms each way", "ms", walls["enqueue"], walls["insert"], "the insert alone", reach, "less")
    )
    report.add(Figure(f"{what}, client", "us", cpus["enqueue"], cpus["insert"], "the insert alone", 1.25, "less"))
