from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import Reader, reader
from tests.fixtures.database import Database


@pytest.fixture
def newcomer(empty_database: Database, tmp_path: Path) -> Iterator[Reader]:
    """Somebody with an empty folder, and a database in which nothing is installed."""
    url = empty_database.url.render_as_string(hide_password=False)
    with reader(tmp_path, {"DATABASE_URL": url}) as one:
        yield one


@pytest.fixture
def user(database: Database, tmp_path: Path) -> Iterator[Reader]:
    """Somebody with an empty folder, whose database has the queue installed."""
    url = database.url.render_as_string(hide_password=False)
    with reader(tmp_path, {"DATABASE_URL": url, "FAIRQUEUE_DATABASE_URL": url}) as one:
        yield one
