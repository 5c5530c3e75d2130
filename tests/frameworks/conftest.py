from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import Queue
from tests.fixtures.database import Database
from tests.fixtures.drivers import ASYNC, SYNC
from tests.frameworks.shop import Base

Look = Callable[[Queue], tuple[list[tuple[str, bool]], int]]


def _first(drivers: Sequence[str]) -> list[Any]:
    """The first one in `tests`, all of them in `whole`."""
    return [drivers[0], *(pytest.param(one, marks=pytest.mark.whole) for one in drivers[1:])]


@pytest.fixture(params=_first(SYNC))
def url(database: Database, request: pytest.FixtureRequest) -> URL:
    """The database on each driver that applications with Session use."""
    return database.url.set(drivername=f"postgresql+{request.param}")


@pytest.fixture(params=_first(ASYNC))
async def async_engine(database: Database, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    """An engine on each driver that applications with AsyncSession use; the database has their tables."""
    Base.metadata.create_all(database.own)
    engine = create_async_engine(database.url.set(drivername=f"postgresql+{request.param}"))
    yield engine
    await engine.dispose()


@pytest.fixture
def look(database: Database) -> Look:
    """Look at what is committed: customers of orders with whether they are confirmed, and how many messages wait."""

    def look_at(queue: Queue) -> tuple[list[tuple[str, bool]], int]:
        rows = database.rows("select customer, confirmed from shop_order order by id")
        return [(row.customer, row.confirmed) for row in rows], queue.stats(database.own).ready

    return look_at
