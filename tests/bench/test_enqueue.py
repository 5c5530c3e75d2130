"""An insert and an enqueue in a session's transaction, against the insert alone: by the network, and client time."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import pytest
from sqlalchemy import URL, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from tests.bench.figures import Alternate, Report
from tests.bench.stage import Stage, driver_url
from tests.fixtures.proxy import proxied
from tests.unit_of_work.business import Base, Upload

_WAY = 0.001
_SIDES = ("enqueue", "insert")
_QUEUE = Queue("documents", schema="fairqueue")


def _work(session: Session, side: str, number: int) -> None:
    session.add(Upload(name=f"{side} {time.monotonic_ns()} {number}"))
    if side == "enqueue":
        _QUEUE.enqueue(session, channel=f"tenant-{number % 100}", payload={"upload": number})


@contextlib.contextmanager
def _sync(url: URL, times: int) -> Iterator[Callable[[str], None]]:
    engine = create_engine(url, pool_size=1)

    def run(side: str) -> None:
        for number in range(times):
            with Session(engine) as session, session.begin():
                _work(session, side, number)

    yield run
    engine.dispose()


@contextlib.contextmanager
def _asyncio(url: URL, times: int) -> Iterator[Callable[[str], None]]:
    engine = create_async_engine(url, pool_size=1)

    async def all_of(side: str) -> None:
        for number in range(times):
            async with AsyncSession(engine) as session, session.begin():
                await session.run_sync(_work, side, number)

    with asyncio.Runner() as runner:
        yield lambda side: runner.run(all_of(side))
        runner.run(engine.dispose())


@pytest.mark.parametrize(
    ("driver", "maker", "reach"),
    [("psycopg", _sync, 1.05), ("psycopg", _asyncio, 1.05), ("psycopg2", _sync, None), ("asyncpg", _asyncio, None)],
)
def test_an_insert_and_an_enqueue(  # noqa: PLR0917 - fixtures
    stage: Stage,
    report: Report,
    alternate: Alternate,
    driver: str,
    maker: Callable[[URL, int], AbstractContextManager[Callable[[str], None]]],
    reach: float | None,
    *,
    full: bool,
) -> None:
    """If work travels with COMMIT, the enqueue costs no time on the network; else one round trip."""
    times = 400 if full else 50
    what = f"{driver}, {'Session' if maker is _sync else 'AsyncSession'}: insert and enqueue"
    with stage.clone(stage.fill()) as conninfo:
        url = driver_url(conninfo, driver)
        engine = create_engine(driver_url(conninfo))
        Base.metadata.create_all(engine)
        engine.dispose()
        with proxied(url, _WAY) as proxy, maker(url, times) as direct, maker(proxy.url, times) as far:

            def measure(side: str) -> Mapping[str, float]:
                began = time.perf_counter()
                far(side)
                took, used = time.perf_counter() - began, time.process_time()
                direct(side)
                return {"ms": took / times * 1e3, "us": (time.process_time() - used) / times * 1e6}

            for side in _SIDES:
                measure(side)
            found = alternate(_SIDES, measure)
    against = "the insert alone"
    report.add(found.compare(f"{what}, 1 ms each way", "ms", _SIDES, against, reach, better="less"))
    report.add(found.compare(f"{what}, client", "us", _SIDES, against, 1.25, better="less"))
