"""``enqueue(df, ...)``: a load as a plain function, which returns its result and raises errors as they are."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.executors import shipped
from sqlalchemy_fairqueue.spark.writing.columns import columns_of
from sqlalchemy_fairqueue.spark.writing.load import begin
from sqlalchemy_fairqueue.spark.writing.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.spark.writing.merge import LoadResult


def enqueue(df: DataFrame, **options: Any) -> LoadResult:
    """Enqueue a frame, all rows or none, and return the counts.

    It does the same as ``df.write.format("fairqueue")``, but this process does the driver's part: it must reach the
    database, and errors are those of this package. With Spark Connect this process is the client.

    Args:
        df: Columns ``channel`` and ``payload``, and optionally ``kind``, ``at``, ``delay``, ``priority``,
            ``key``, ``headers`` and ``max_attempts``.
        **options: The fields of :class:`~sqlalchemy_fairqueue.spark.writing.options.WriteOptions`: ``dsn`` or
            ``dsn_env``, ``queue``, ``job_id``, ``schema``, ...

    Returns:
        The counts. ``merged`` is False if the job was enqueued before; then the counts are those of that run.

    Raises:
        BadOption, BadFrame: Before any task has started.
        BadRows: Rows have bad values; up to ten are shown.
        KeyStands, ChannelFull, StageIncomplete, PipelineError: Nothing was enqueued, as the class says.
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
        # Spark keeps one row a partition: that of the successful attempt.
        reports = df.mapInArrow(shipped(staged), "staged binary").collect()
    except BaseException:
        load.drop()
        raise
    return load.merge([pickle.loads(bytes(row.staged)) for row in reports])  # noqa: S301 - pickled by our own tasks
