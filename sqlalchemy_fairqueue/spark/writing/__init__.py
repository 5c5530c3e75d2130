"""Writing of frames to queues: executors copy rows to a staging table, and the driver merges them in one transaction.

``text_files`` reads files of messages. ``columns`` converts Arrow batches to rows of the staging table, and finds bad
rows. ``rejected_rows`` stores the bad rows. ``stage`` makes, fills and drops the staging table. ``load`` runs loads.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sqlalchemy_fairqueue.spark.errors import BadOption, PipelineError
from sqlalchemy_fairqueue.spark.executors import Shipped, shipped
from sqlalchemy_fairqueue.spark.options import WriteOptions, read_options
from sqlalchemy_fairqueue.spark.writing.columns import columns_of
from sqlalchemy_fairqueue.spark.writing.load import Load, LoadResult, Staged, begin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


# Spark passes its own options to the writer, too.
_SPARK_OPTIONS = ("checkpointLocation", "queryName")
# Local properties of Spark's tasks.
_EXECUTION, _ROOT_EXECUTION, _STREAM = "spark.sql.execution.id", "spark.sql.execution.root.id", "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class _TableCreated(WriterCommitMessage):
    """The report of a task that staged nothing because the write would create a table; the commit raises BadOption."""


class _Writer(Shipped):
    def __init__(self, load: Load) -> None:
        self._load = load

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: ARG002, N803 - Spark's name
        self._load.drop(_reports(messages))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Enqueues a frame in one transaction."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _TableCreated() if _creates_table() else self._load.stage_rows(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if any(isinstance(one, _TableCreated) for one in messages):
            raise BadOption(
                "format fairqueue creates no tables, since nobody could read them; nothing was enqueued; write "
                "df.write.format('fairqueue').mode('append').options(...).save(), without saveAsTable, writeTo or "
                "create table"
            )
        self._load.merge(_all(messages))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Enqueues each micro-batch of a stream exactly once, in one transaction."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._load.stage_rows(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._load.merge(_all(messages), batchId)


def begin_write(given: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool) -> Load:
    options = read_options(WriteOptions, given, _SPARK_OPTIONS if stream else ())
    if overwrite:
        raise BadOption("a queue is not overwritten; write with mode append")
    if stream and options.job_id is None:
        raise BadOption("a stream was not given jobId; add .option('jobId', ...), and keep it with the checkpoint")
    return begin(options, columns_of(schema, options), stream=stream)


def _creates_table() -> bool:
    """Return whether this task's write creates a table: ``saveAsTable``, ``writeTo(...).create()``, ``create table``.

    Options, schema and mode do not tell, since they are the same for ``save()``. But Spark runs such a write inside
    another execution, which creates the table. A task knows the ids of both executions, and the write creates a table
    if the ids differ. In ``foreachBatch`` the ids tell nothing, so the result is False there.
    """
    context = TaskContext.get()
    if context is None or context.getLocalProperty(_STREAM):
        return False
    root = context.getLocalProperty(_ROOT_EXECUTION)
    return root is not None and root != context.getLocalProperty(_EXECUTION)


def _all(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    if None in messages:
        raise PipelineError(
            f"{sum(one is None for one in messages)} of {len(messages)} tasks sent no report; run the load again"
        )
    return _reports(messages)


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [one for one in messages if isinstance(one, Staged)]


def enqueue(df: DataFrame, **options: Any) -> LoadResult:
    """Enqueue a frame in one transaction, and return the counts.

    It does the same as ``df.write.format("fairqueue")``, but this process does the driver's part: it must reach the
    database, and its errors are those of this package. With Spark Connect this process is the client. If a load with
    the same ``job_id`` was enqueued before, this one adds nothing, and returns the earlier counts.

    Args:
        df: Columns ``channel`` and ``payload``, and optionally further ones of a message, such as ``kind`` and ``key``.
        **options: The options of :doc:`/spark`, in snake case: ``dsn`` or ``dsn_env``, ``queue``, ``job_id``, ...

    Raises:
        BadOption, BadFrame: An option or a column is wrong. No task has started.
        BadRows: Rows have bad values; up to ten are shown.
        KeyStands: Keys are taken, or come twice in the frame, and *on_duplicate* is "raise".
        ChannelFull: A channel has reached its ``max_backlog``, and its policy says "raise".
        StageIncomplete: Staged rows are missing, probably after a crash of the server.
        PipelineError: The load failed. After a lost connection it is unknown whether the rows were enqueued: run the
            load again with its *job_id*. After any other error nothing was enqueued.
    """
    try:
        settings = WriteOptions(**options)
    except TypeError as error:
        raise BadOption(f"enqueue: {str(error).partition(') ')[2] or error}; see WriteOptions") from None
    load = begin(settings, columns_of(df.schema, settings))

    def staged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow  # noqa: ICN001, PLC0415 - on the executor

        yield pyarrow.record_batch([pyarrow.array([pickle.dumps(load.stage_rows(batches))])], names=["staged"])

    try:
        # Spark keeps one row of each partition, from the successful task attempt.
        reports = df.mapInArrow(shipped(staged), "staged binary").collect()
    except BaseException:
        load.drop()
        raise
    return load.merge([pickle.loads(bytes(row.staged)) for row in reports])  # noqa: S301 - pickled by our own tasks
