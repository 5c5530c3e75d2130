from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import pytest
from sqlalchemy import URL

from sqlalchemy_fairqueue import Queue
from tests.drivers.faces import FACES, Face
from tests.fixtures.database import Database
from tests.unit_of_work.business import Base

MakeFace = Callable[..., Face]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each variant of a test on one of its drivers, in turn: `nox -s whole` and `nox -s drivers` have them all.

    A module about the way of some of them names these in ``ABOUT``, and runs on one of these.
    """
    variants: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "make_face" in item.callspec.params:
            variants[item.nodeid.replace(str(item.callspec.params["make_face"]), "driver", 1)].append(item)
    for name, drivers in variants.items():
        about = getattr(drivers[0].module, "ABOUT", FACES)
        fitting = [item for item in drivers if item.callspec.params["make_face"] in about] or drivers
        chosen = fitting[crc32(name.encode()) % len(fitting)]
        for item in drivers:
            if item is not chosen:
                item.add_marker(pytest.mark.whole)


@pytest.fixture
def queue() -> Queue:
    """A queue that remembers nothing of other tests."""
    return Queue("documents")


@pytest.fixture(params=FACES)
def make_face(request: pytest.FixtureRequest) -> Iterator[MakeFace]:
    """Make faces of each driver in turn, disposed of after the test: ``make_face(url, pool_size=1)``."""
    module, face = FACES[request.param]
    pytest.importorskip(module)
    made: list[Face] = []

    def make(url: URL, **options: Any) -> Face:
        made.append(face(url.set(drivername=f"postgresql+{module}"), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def face(make_face: MakeFace, database: Database) -> Face:
    """Each driver in turn, on the test's database, which has the business tables."""
    Base.metadata.create_all(database.own)
    return make_face(database.url)


@pytest.fixture
def single(make_face: MakeFace, face: Face) -> Face:
    """The driver with a single connection."""
    return make_face(face.url, pool_size=1, max_overflow=0)
