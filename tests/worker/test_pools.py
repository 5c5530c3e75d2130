"""Pools that have fewer connections than a worker has handlers."""

import logging
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from tests.fixtures.database import Database

_ONE = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.01}


def _session(_: Delivery, session: Session) -> None: ...


async def _async_session(_: Delivery, session: AsyncSession) -> None: ...


def _none(_: Delivery) -> None: ...


def test_a_narrow_pool_is_said(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A worker whose handlers' sessions may want more connections than their pool has says so at its start."""
    pools: list[tuple[dict[str, Any], Any, int]] = [
        ({"pool_size": 3, "max_overflow": 0}, _session, 1),
        ({"pool_size": 2, "max_overflow": 2}, _session, 0),
        ({"pool_size": 1, "max_overflow": -1}, _session, 0),
        ({"pool_size": 0, "max_overflow": 0}, _session, 0),
        ({"poolclass": NullPool}, _session, 0),
        ({"pool_size": 3, "max_overflow": 0}, _none, 0),
    ]
    for pool, handler, warnings in pools:
        caplog.clear()
        queue = Queue("documents")
        queue.handler()(handler)
        narrow = create_engine(database.url, **pool)
        with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"), Worker(narrow, queue, concurrency=4):
            pass
        assert caplog.text.count("has 3 connection(s)") == warnings, pool
        narrow.dispose()


async def test_a_narrow_pool_is_said_in_asyncio(
    queue: Queue, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The same in asyncio."""
    queue.handler()(_async_session)
    narrow = create_async_engine(database.url, **_ONE)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        async with AsyncWorker(narrow, queue, concurrency=4):
            pass
    assert "create the engine with pool_size=4, or give the worker concurrency=1" in caplog.text
    await narrow.dispose()
