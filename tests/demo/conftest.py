from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine

from sqlalchemy_fairqueue.demo.run import migrated_database


@pytest.fixture
def app_engine(server_url: URL) -> Iterator[Engine]:
    """An engine on a database that the app's migration was run on."""
    with migrated_database(server_url) as engine:
        yield engine
