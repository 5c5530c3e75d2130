"""Databases with version 2 of the schema, whichever version the rest of the suite runs on."""

import pytest
from sqlalchemy import NullPool, create_engine

from tests.fixtures.database import SCHEMA_VERSION, Database, MakeDatabase, install


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    """The test's own database with version 2 installed."""
    if SCHEMA_VERSION == 2:
        return make_database()
    made = make_database(installed=False)
    with create_engine(made.url, poolclass=NullPool).begin() as connection:
        install(connection, version=2)
    return made
