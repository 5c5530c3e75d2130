from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.fixtures.database import Database
from tests.fixtures.drivers import DRIVER
from tests.model.world import World


@pytest.fixture
def make_world(database: Database) -> Iterator[Callable[[str], World]]:
    """The database under the machine, used by a driver."""
    with ExitStack() as stack:
        yield lambda driver: stack.enter_context(closing(World(database, driver)))


@pytest.fixture
def world(make_world: Callable[[str], World]) -> World:
    """The database under the machine, used by the driver of the run."""
    return make_world(DRIVER)
