"""Rows of the fuzzer's grammar, read by Spark: every table arrives whole, whatever a producer has passed.

FAIRQUEUE_FUZZ_ROWS is the number of rows, FAIRQUEUE_FUZZ_SEED the seed.
"""

import os

import psycopg
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import create_engine

from sqlalchemy_fairqueue import BytesCodec, Queue
from tests.fixtures.database import Database
from tests.queue.row_grammar import Grammar, send

_ROWS = int(os.environ.get("FAIRQUEUE_FUZZ_ROWS", "400"))
_SEED = int(os.environ.get("FAIRQUEUE_FUZZ_SEED", "1"))
_ROUND = 20


@pytest.mark.long
def test_every_table_arrives(spark: SparkSession, database_alone: Database) -> None:
    """Spark reads as many rows as there are, and all of their columns, after retries, burials and completions."""
    queue, grammar = Queue("documents", codec=BytesCodec()), Grammar(_SEED)
    engine = create_engine(database_alone.url)
    queue.configure(engine, history=True)
    with psycopg.connect(database_alone.conninfo, autocommit=True) as connection:
        for _ in range(0, _ROWS, _ROUND):
            assert sum(send(connection, grammar.row()) for _ in range(_ROUND))
            for delivery in queue.dequeue(engine, limit=1000)[1:]:
                match grammar.random.randrange(3):
                    case 0:
                        queue.retry(engine, delivery, error=grammar.text())
                    case 1:
                        queue.bury(engine, delivery, reason=grammar.text(), error=grammar.text())
                    case _:
                        queue.complete(engine, delivery)
    engine.dispose()
    for table in ("history", "messages", "dead_letters", "channels"):
        options = {"dsn": database_alone.conninfo, "queue": "documents", "table": table, "numPartitions": "2"}
        found = spark.read.format("fairqueue").options(**options).load().collect()
        assert len(found) == database_alone.value(f"select count(*) from fq_{table.removesuffix('s')}") > 0, table
