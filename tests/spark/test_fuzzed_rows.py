"""The history of a queue under the fuzzer, read by Spark."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from sqlalchemy_fairqueue import install_fairqueue
from tests.fixtures.database import Database
from tests.queue.fuzzing import Fuzzed
from tests.queue.row_grammar import QUEUE
from tests.roles.conftest import SCHEMA, Installation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 120
_ROUND = 20


@pytest.fixture
def fuzzed(database_alone: Database) -> Iterator[Fuzzed]:
    """The queue, with calls of a seed."""
    owner = create_engine(database_alone.url, pool_size=5)
    install_fairqueue(owner, SCHEMA)
    with contextlib.ExitStack() as stack:
        stack.callback(owner.dispose)
        found = Fuzzed(Installation(database_alone, owner, stack), 5)
        stack.callback(found.close)
        yield found


def test_every_attempt_at_such_rows_arrives(spark: "SparkSession", fuzzed: Fuzzed) -> None:
    """Spark reads an attempt for each row of the history, its texts as they are, whatever a producer sent."""
    for _ in range(0, _ROWS, _ROUND):
        for _ in range(_ROUND):
            fuzzed.send()
        fuzzed.serve(fuzzed.bystander())
    columns = "id, channel, kind, attempt, outcome, error"

    options = {"dsn": fuzzed.jobs.database.conninfo, "queue": QUEUE, "schema": SCHEMA}
    frame = spark.read.format("fairqueue").options(**options).load()

    seen = frame.selectExpr(*columns.split(", ")).orderBy("id").collect()
    kept = fuzzed.jobs.database.rows(f"select {columns} from {SCHEMA}.fq_history order by id")
    assert [tuple(row) for row in seen] == [tuple(row) for row in kept]
    assert {row.outcome for row in seen} == {"completed", "retried", "released", "buried"}
    assert len({row.channel for row in seen}) > 10
    assert any(row.error for row in seen)
