"""The queue that tests of Spark write and read, and a server of their own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue.embedded.server import Server, embedded_server
from tests.fixtures.database import Database, install
from tests.fixtures.server import programs
from tests.spark.streams import Checkpoint, Follow, Follower

_FOLDER = Path(__file__).parent
_CLOSES_SOCKETS = (4, 2)
# On a busy machine the start of Spark and its first job take minutes, and any test may be the first.
_FIRST_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, give it time for the start of Spark, and bear with sockets that older versions of PySpark
    leave to the garbage collector.
    """
    leaves_sockets = tuple(map(int, version("pyspark").split(".")[:2])) < _CLOSES_SOCKETS
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_FIRST_SECONDS))
        if leaves_sockets and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))


def installed(server: Server) -> Database:
    """The first database of a server, with the library."""
    database = Database(server.url())
    with create_engine(database.url, poolclass=NullPool).begin() as connection:
        install(connection)
    return database


def databases_of(server: Server) -> Callable[[], Database]:
    """Return what makes databases with the library on a server, which ends with them: copies of its first one."""
    first, numbers = installed(server), count(1)
    maintenance = create_engine(server.url("template1"), isolation_level="AUTOCOMMIT", poolclass=NullPool)

    def make() -> Database:
        name = f"copy_{next(numbers)}"
        with maintenance.connect() as connection:
            connection.exec_driver_sql(f'create database {name} template "{first.name}" strategy file_copy')
        return Database(server.url(name))

    return make


@pytest.fixture(scope="session")
def make_alone() -> Iterator[Callable[[], Database]]:
    """Make databases on a server that no other process of the run uses.

    The history is read up to the oldest transaction of the whole server. A long one of another test, in whichever
    database, would keep rows back.
    """
    with embedded_server(programs(), durable=False) as server:
        yield databases_of(server)


@pytest.fixture
def database_alone(make_alone: Callable[[], Database]) -> Database:
    """A database of the test's own on that server, with the library installed."""
    return make_alone()


@dataclass(frozen=True, slots=True)
class Target:
    """A queue in the test's database, as options of the data source: ``.options(**target.options)``."""

    database: Database
    queue: str

    @property
    def options(self) -> dict[str, str]:
        """Where and which queue."""
        return {"dsn": self.database.conninfo, "queue": self.queue}


@pytest.fixture
def follow(database: Database) -> Iterator[Follow]:
    """Begin a query, or go on with one: ``follow(checkpoint, startingOffsets="latest")``; stopped after the test."""
    with ExitStack() as stack:

        def begin(checkpoint: Checkpoint | None = None, *, at: Database = database, **options: object) -> Follower:
            follower = Follower(at, checkpoint, **options)
            stack.callback(follower.reader.stop)
            return follower

        yield begin


@pytest.fixture
def target(database: Database) -> Target:
    """Queue ``documents`` in the test's own database."""
    return Target(database, "documents")
