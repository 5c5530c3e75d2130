from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import URL

from sqlalchemy_fairqueue import Queue
from tests.drivers.faces import FACES, Face
from tests.fixtures.database import Database
from tests.unit_of_work.business import Base

MakeFace = Callable[..., Face]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that has no variants but drivers, two run: `nox -s whole` and `nox -s drivers` have them all."""
    for item in items:
        variant = getattr(item, "callspec", None)
        if variant is not None and set(variant.params) == {"make_face"}:
            item.add_marker(pytest.mark.many)


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
