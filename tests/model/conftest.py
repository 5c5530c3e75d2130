from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fixtures.database import Database
from tests.fixtures.drivers import DRIVER
from tests.model.world import World


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    """The database under the machine, used by the driver of the run."""
    with closing(World(database, DRIVER)) as world:
        yield world
