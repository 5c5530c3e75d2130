"""Reads of a history: a report goes through it once, and keeps what it computes until it is done."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.spark import Scenario, replays, report
from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries
from tests.fixtures.database import Database, install
from tests.spark.recorded import add
from tests.spark.report_history import frame, nasty

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)

_COPY = re.compile(r"statement: copy \(.*?from \S*(fq_\w+)", re.IGNORECASE | re.DOTALL)


class Reads:
    """A database with a history, on a server that logs its statements."""

    def __init__(self, server: Server, spark: "SparkSession") -> None:
        self.database = Database(server.url())
        self._server = server
        self._spark = spark

    def frame(self, table: str) -> "DataFrame":
        """A table as a frame that is read anew whenever it is used."""
        return self._spark.read.format("fairqueue").options(dsn=self.database.conninfo, table=table).load()

    def count(self, table: str) -> int:
        """How many COPYs the server has sent of a table."""
        return _COPY.findall(self._server.log_path.read_text(errors="replace")).count(table)


@pytest.fixture
def reads(spark: "SparkSession", private_server: Callable[..., Server]) -> Reads:
    """A thousand attempts of three tenants."""
    made = Reads(private_server(settings={"log_statement": "all"}), spark)
    engine = create_engine(made.database.url, poolclass=NullPool)
    with engine.begin() as connection:
        install(connection)
    add(made.database, 1000)
    return made


def test_replays_and_a_report_read_a_live_history_once_each(reads: Reads) -> None:
    """One COPY of the history makes all replays, another one the report; one of the channels makes its policies."""
    history = reads.frame("history")

    found = replays(history, [Scenario(name="one line", discipline="fifo")])
    assert reads.count("fq_history") == 1

    made = report(history, policies=reads.frame("channels"), output=None, replays=found)
    assert sum(channel.attempts for channel in made.figures.channels) == 1000
    assert (reads.count("fq_history"), reads.count("fq_channel")) == (2, 1)


def test_a_history_that_the_caller_keeps_stays_kept(reads: Reads) -> None:
    """A report of a persisted history leaves it persisted, so that a second one reads nothing."""
    kept = reads.frame("history").persist()
    try:
        report(kept, output=None)

        assert kept.storageLevel.useDisk
        assert kept.count() == 1000
        assert reads.count("fq_history") == 1
    finally:
        kept.unpersist()


def test_what_is_kept_stays_until_the_end(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Each frame that a measurement keeps is kept until the measurement ends, and none stays behind."""
    kept: list[DataFrame] = []
    at_the_end: list[bool] = []
    persist, leave = SparkQueries.persist, SparkQueries.__exit__

    def noted(queries: SparkQueries, frame: "DataFrame") -> "DataFrame":
        kept.append(persist(queries, frame))
        return kept[-1]

    def left(queries: SparkQueries, *error: object) -> object:
        at_the_end.extend(one.storageLevel.useDisk for one in kept)
        return leave(queries, *error)  # type: ignore[arg-type]

    monkeypatch.setattr(SparkQueries, "persist", noted)
    monkeypatch.setattr(SparkQueries, "__exit__", left)

    report(frame(spark, nasty(attempts=100)), output=None)

    assert len(kept) > 1
    assert at_the_end == [True] * len(kept)
    assert not any(one.storageLevel.useDisk for one in kept)
