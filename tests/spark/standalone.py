"""A program: enqueues a frame on a standalone cluster of a master and two workers, and reads it back.

``python -m tests.spark.standalone QUEUE ROWS FOLDER [ARCHIVE]`` prints as JSON how many messages were enqueued and read
and, of each executor, its folder, its Python and where that has the package. ARCHIVE is an environment to ship; without
one the executors use the Python of this program. The variable QUEUE_DSN has the database.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.java import java_home, session
from tests.spark.cluster import enqueue_twice, home_of_spark, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

_PATIENCE_SECONDS = 120
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def _daemon(log: Path, kind: str, *arguments: str) -> Iterator[None]:
    """A process of the cluster, which ends with the block."""
    spark_class = Path(os.environ["SPARK_HOME"], "bin", "spark-class")
    with log.open("wb") as output:
        started = [str(spark_class), f"{_DEPLOY}.{kind}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        process = subprocess.Popen(started, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _address(log: Path) -> str:
    """The address of the master, when it has one."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (found := re.search(r"spark://[\w.]+:\d+", log.read_text(errors="replace"))):
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.1)
    return found[0]


def _where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - on the executor

    import sqlalchemy_fairqueue as package  # noqa: PLC0415

    rows = sum(batch.num_rows for batch in batches)
    yield pa.record_batch(
        {"folder": [os.getcwd()], "python": [sys.executable], "package": [package.__file__], "rows": [rows]}  # noqa: PTH109
    )


_where.__module__ = "__main__"


def _run(spark: SparkSession, queue: str, rows: int) -> dict[str, object]:
    frame = rows_of(spark, rows)
    done = enqueue_twice(frame, lambda same: same, queue)
    options = {"dsnEnv": "QUEUE_DSN", "queue": queue, "table": "messages", "numPartitions": "2"}
    read = spark.read.format("fairqueue").options(**options).load()
    where = frame.mapInArrow(_where, "folder string, python string, package string, rows bigint").collect()
    return {"created": done.created, "read": read.count(), "executors": [one.asDict() for one in where]}


def _main() -> None:
    queue, rows, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    os.environ |= {"SPARK_HOME": str(home_of_spark(folder / "spark")), "JAVA_HOME": str(java_home())}
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    dsn = os.environ["QUEUE_DSN"]
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.QUEUE_DSN": dsn,
        "spark.log.level": "ERROR",
    }
    if len(sys.argv) > 4:
        # Spark plans a data source on the driver by the same path: it needs the environment there, too.
        os.chdir(folder)
        shutil.unpack_archive(sys.argv[4], folder / "environment", filter="fully_trusted")
        settings["spark.archives"] = f"{sys.argv[4]}#environment"
        os.environ["PYSPARK_PYTHON"] = "./environment/bin/python"
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with ExitStack() as cluster:
        log = folder / "master"
        cluster.enter_context(_daemon(log, "master.Master", "--port", "0"))
        address = _address(log)
        for number in (1, 2):
            work = ("--work-dir", str(folder / f"work-{number}"), "--cores", "1", "--memory", "600m")
            cluster.enter_context(_daemon(folder / f"worker-{number}", "worker.Worker", *work, address))
        spark = cluster.enter_context(session("fairqueue standalone", **{"spark.master": address, **settings}))
        found = _run(spark, queue, rows)
    print(json.dumps(found))  # noqa: T201 - what it is asked for


if __name__ == "__main__":
    _main()
