from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue.demo.database import upgrade
from tests.fixtures.database import Database


@pytest.fixture
def app_engine(empty_database: Database) -> Iterator[Engine]:
    """An engine on a database that has all the app's migrations."""
    engine = create_engine(empty_database.url)
    with engine.begin() as connection:
        upgrade(connection)
    yield engine
    engine.dispose()
