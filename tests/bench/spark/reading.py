"""Read one history into Spark in turn by the data source and by JDBC, both as the same typed columns; a program.

``python -m tests.bench.spark.reading DSN JDBC_URL JAR ROUNDS`` prints rows a second, by side, as JSON.
"""

import json
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sqlalchemy_fairqueue.spark import register
from sqlalchemy_fairqueue.spark.java import session

_TASKS = 2
_INSTANTS = ("enqueued_at", "ready_at", "started_at", "finished_at")
# JDBC knows no xid8; the rest is as the table has it.
_QUERY = """
(select id, queue, channel_id, channel, message_id, kind, consumer, attempt, enqueued_at, ready_at, started_at,
  finished_at, outcome, error, recorded_xid::text::bigint as recorded_xid, cost, group_id::text as "group"
  from fq_history) h
"""


def by_source(spark: SparkSession, dsn: str) -> DataFrame:
    """Return the history by the library's source."""
    return spark.read.format("fairqueue").option("dsn", dsn).option("numPartitions", str(_TASKS)).load()


def by_jdbc(spark: SparkSession, url: str, rows: int) -> DataFrame:
    """Return the history by Spark's own source in as many tasks, microseconds made instants in Spark."""
    options = {
        "url": url, "driver": "org.postgresql.Driver", "dbtable": _QUERY, "fetchsize": "10000",
        "partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": str(_TASKS),
    }  # fmt: skip
    frame = spark.read.format("jdbc").options(**options).load()
    return frame.selectExpr(
        *(f"timestamp_micros({name}) as {name}" if name in _INSTANTS else name for name in frame.columns)
    )


def measure(dsn: str, url: str, jar: str, rounds: int) -> dict[str, list[float]]:
    """Return rows a second of each side, round by round, after one round that does not count."""
    spark = session("bench of reading", **{"spark.log.level": "ERROR", "spark.jars": jar})
    register(spark)
    rows = by_source(spark, dsn).count()
    sides: dict[str, Any] = {
        "ours": lambda: by_source(spark, dsn),
        "jdbc": lambda: by_jdbc(spark, url, rows),
    }
    first, second = (sorted(side().dtypes) for side in sides.values())
    assert first == second, (first, second)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            sides[name]().write.format("noop").mode("overwrite").save()
            if number:
                found[name].append(rows / (time.perf_counter() - started))
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))))  # noqa: T201 - a program
