"""A program: enqueues a frame twice, as two jobs, on a cluster whose executors are all killed while each is under way.

``python -m tests.spark.cluster QUEUE ROWS FOLDER`` prints the counts of the first job as JSON, and notes in
FOLDER/killed which processes it killed. The variable QUEUE_DSN has the database.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyspark
from pyspark import TaskContext

from sqlalchemy_fairqueue.spark import enqueue, register
from sqlalchemy_fairqueue.spark.java import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.spark.writing.load import LoadResult

_SCHEMA = "channel string, payload struct<document: bigint>"
_STAGED = "select c.oid::regclass::text from pg_class c where c.relkind = 'r' and starts_with(c.relname, 'fq_stage_')"
_PATIENCE_SECONDS = 120
_EXECUTOR = b"CoarseGrainedExecutorBackend"


def killing(frame: DataFrame, dsn: str, killed: str) -> DataFrame:
    """The frame; when the first half is staged and the other is being copied, every executor is killed, once.

    Args:
        frame: Two partitions.
        dsn: The database.
        killed: A file to note the processes in.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and context.partitionId() == 1 and context.attemptNumber() == 0:
                _await_rows(dsn)
                _kill_executors(killed)

    return frame.mapInArrow(rows, _SCHEMA)


def _await_rows(dsn: str) -> None:
    """Wait until the other task has committed what it staged."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with psycopg.connect(dsn, autocommit=True) as connection:
        for (name,) in connection.execute(_STAGED).fetchall():
            while connection.execute(f"select from {name} limit 1".encode()).rowcount == 0:
                assert time.monotonic() < deadline, "the other task staged nothing"


def _kill_executors(killed: str) -> None:
    """Kill the executors of this application, the one that this task runs on as the last."""
    own = os.getpid()
    while _EXECUTOR not in _command(own):
        own = _parent(own)
    processes = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    others = [one for one in processes if one != own and _EXECUTOR in _command(one) and _parent(one) == _parent(own)]
    with Path(killed).open("a", encoding="utf-8") as file:
        file.write("".join(f"{process}\n" for process in (*others, own)))
    for process in (*others, own):
        os.kill(process, signal.SIGKILL)


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])


def home_of_spark(folder: Path) -> Path:
    """A home of Spark's like that of the wheel: a cluster is started from one, and its workers write into it."""
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    return folder


def enqueue_twice(frame: DataFrame, prepared: Callable[[DataFrame], DataFrame], queue: str) -> LoadResult:
    """By the function and by the format, as jobs of these names; what the first has done."""
    target = {"dsnEnv": "QUEUE_DSN", "queue": queue, "jobId": "format"}
    done: LoadResult = enqueue(prepared(frame), dsn_env="QUEUE_DSN", queue=queue, job_id="function")
    prepared(frame).write.format("fairqueue").mode("append").options(**target).save()
    return done


def rows_of(spark: SparkSession, rows: int) -> DataFrame:
    """So many rows for seven channels, in two partitions."""
    register(spark)
    return spark.range(0, rows, 1, 2).selectExpr(
        "concat('customer-', id % 7) as channel", "named_struct('document', id) as payload"
    )


def _main() -> None:
    queue, rows, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    prepared = partial(killing, dsn=os.environ["QUEUE_DSN"], killed=str(folder / "killed"))
    os.environ["SPARK_HOME"] = str(home_of_spark(folder / "spark"))
    settings = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "512m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.log.level": "ERROR",
    }
    with session("fairqueue cluster", **settings) as spark:
        done = enqueue_twice(rows_of(spark, rows), prepared, queue)
    print(json.dumps([done.messages, done.created]))  # noqa: T201 - what it is asked for


if __name__ == "__main__":
    _main()
