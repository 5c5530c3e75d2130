import pytest
from sqlalchemy import create_engine

from tests.fixtures.database import Database
from tests.unit_of_work.business import Base


@pytest.fixture
def database(database: Database) -> Database:
    """The test's database, with the business tables."""
    engine = create_engine(database.url)
    Base.metadata.create_all(engine)
    engine.dispose()
    return database
