"""Uses the data source and the plain functions over Spark Connect; a program, for a process has one kind of Spark.

``python -m tests.spark.over_connect DSN FOLDER`` prints what came of it as JSON.
The server is a local one, on a Java of its own.
"""

from __future__ import annotations

import json
import os
import sys

from sqlalchemy_fairqueue.spark import Scenario, archive, enqueue, read_archive, register, replay
from sqlalchemy_fairqueue.spark.errors import ArchiveError
from sqlalchemy_fairqueue.spark.java import java_home

_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def used(dsn: str, folder: str) -> dict[str, object]:
    """What reads, loads and the functions gave."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it needs a Java first
    from pyspark.sql.functions import col, lit, struct  # noqa: PLC0415

    builder = SparkSession.builder.remote("local[2]")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    found: dict[str, object] = {"session": type(spark).__module__}
    history = spark.read.format("fairqueue").option("dsn", dsn).load()
    found["history"] = history.count()
    frame = spark.range(30).select(lit("a").alias("channel"), struct(col("id")).alias("payload"))
    options = {"dsn": dsn, "queue": "documents", "jobId": "saved"}
    frame.write.format("fairqueue").mode("append").options(**options).save()
    found["loaded"] = [enqueue(frame, dsn=dsn, queue="documents", job_id="called").merged for _ in range(2)]
    found["messages"] = spark.read.format("fairqueue").options(dsn=dsn, table="messages").load().count()
    found["archived"] = read_archive(spark, f"{folder}/archive").count()
    query = spark.readStream.format("fairqueue").options(dsn=dsn, columns="id").load().writeStream.format("memory")
    query = query.queryName("followed").option("checkpointLocation", f"{folder}/checkpoint")
    running = query.trigger(availableNow=True).start()
    found["ended"] = running.awaitTermination(60)
    found["followed"] = spark.table("followed").count()
    found["replayed"] = replay(history, [Scenario(name="again")]).count()
    try:
        archive(spark, f"{folder}/archive", dsn=dsn)
    except ArchiveError as error:
        found["archive"] = str(error)
    spark.stop()
    return found


if __name__ == "__main__":
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    print(json.dumps(used(*sys.argv[1:])))  # noqa: T201 - a program
