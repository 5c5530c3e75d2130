from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine

from sqlalchemy_fairqueue.demo.run import app_database


@pytest.fixture
def app_engine(server_url: URL) -> Iterator[Engine]:
    """An engine on a database with the app's tables and the queue."""
    with app_database(server_url) as engine:
        yield engine
