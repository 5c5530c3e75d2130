"""Pools that have fewer connections than a worker has handlers."""

from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from tests.fixtures.database import Database


def _session(_: Delivery, session: Session) -> None: ...


async def _async_session(_: Delivery, session: AsyncSession) -> None: ...


async def test_a_narrow_pool_is_said(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A worker whose handlers' sessions may want more connections than their pool has says so at its start."""
    pools: list[tuple[dict[str, Any], Any, bool]] = [
        ({"pool_size": 3, "max_overflow": 0}, _session, True),
        ({"pool_size": 3, "max_overflow": 0}, _async_session, True),
        ({"pool_size": 2, "max_overflow": 2}, _session, False),
        ({"pool_size": 1, "max_overflow": -1}, _session, False),
        ({"pool_size": 0, "max_overflow": 0}, _session, False),
        ({"poolclass": NullPool}, _session, False),
        ({"pool_size": 3, "max_overflow": 0}, print, False),
    ]
    for pool, handler, is_said in pools:
        caplog.clear()
        queue = Queue("documents")
        queue.handler()(handler)
        if handler is _async_session:
            async_engine = create_async_engine(database.url, **pool)
            async with AsyncWorker(async_engine, queue, concurrency=4):
                pass
            await async_engine.dispose()
        else:
            engine = create_engine(database.url, **pool)
            with Worker(engine, queue, concurrency=4):
                pass
            engine.dispose()
        said = "has 3 connection(s)" in caplog.text and "or give the worker concurrency=3" in caplog.text
        assert said == is_said, pool
