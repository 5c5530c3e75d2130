"""An application: a queue with handlers, a function under test, and sessions that are rolled back at the end."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.testing import rolled_back


@pytest.fixture
def queue() -> Queue:
    """A queue that remembers nothing of other tests."""
    return Queue("documents")


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """A session that has joined the test's transaction: what commits is rolled back all the same."""
    with rolled_back(engine) as found:
        yield found


@pytest.fixture
async def async_session(async_engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    """The same for async code."""
    async with rolled_back(async_engine) as found:
        yield found
