from collections.abc import Iterator

import pytest

from tests.fixtures.database import Database
from tests.model.world import World


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    """The database under the machine."""
    world = World(database)
    yield world
    world.close()
