"""One Spark session for all of these tests, and the queue that they write and read."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue.embedded.server import Server, embedded_server
from tests.fixtures.database import Database, install
from tests.fixtures.server import programs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.fixture(scope="module")
def server_alone() -> Iterator[Server]:
    """A server of the module's own.

    The history is read up to the oldest transaction of the whole server. A long one of another test, in whichever
    database, would keep rows back.
    """
    with embedded_server(programs(), durable=False) as server:
        yield server


@pytest.fixture
def database_alone(server_alone: Server, request: pytest.FixtureRequest) -> Database:
    """A database of the test's own on that server, with the library installed."""
    name = f"alone_{abs(hash(request.node.nodeid))}"
    maintenance = create_engine(Database(server_alone.url()).url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with maintenance.connect() as connection:
        connection.exec_driver_sql(f"create database {name}")
    found = Database(server_alone.url(name))
    engine = create_engine(found.url, poolclass=NullPool)
    with engine.begin() as connection:
        install(connection)
    return found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A local session on two cores with the data source registered, stopped after the run."""
    from sqlalchemy_fairqueue.spark import register  # noqa: PLC0415 - Spark is loaded only where it is tested
    from sqlalchemy_fairqueue.spark.java import session  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("spark")
    started = session(
        "fairqueue tests",
        **{
            # A task that fails is tried once more.
            "spark.master": "local[2, 2]",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
            # Few rows and many plans: the better code of the second compiler comes too late to be of use.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    register(started)
    yield started
    started.stop()


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
def target(database: Database) -> Target:
    """Queue ``documents`` in the test's own database."""
    return Target(database, "documents")
