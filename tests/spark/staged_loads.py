"""A load without Spark: what its tasks and its driver do, called step by step, so that tests can disturb each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import create_autospec, patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from sqlalchemy_fairqueue.spark.options import WriteOptions
from sqlalchemy_fairqueue.spark.writing.columns import columns_of
from sqlalchemy_fairqueue.spark.writing.load import Load, LoadResult, Staged, begin
from sqlalchemy_fairqueue.spark.writing.stage import copy_rows
from tests.fixtures.database import Database

Row = tuple[str, str, str | None]

_SCHEMA = StructType([StructField(name, StringType()) for name in ("channel", "payload", "key")])


def start(database: Database, job_id: str | None = "job", *, stream: bool = False, **options: Any) -> Load:
    """The driver begins, or a stream a micro-batch: rows have a channel, a payload and a key."""
    chosen = WriteOptions(dsn=database.conninfo, queue="q", job_id=job_id, **options)
    return begin(chosen, columns_of(_SCHEMA, chosen), stream=stream)


def run(database: Database, *rows: Row, job_id: str | None = "job", **options: Any) -> LoadResult:
    """A job of one task, from its begin to its end."""
    load = start(database, job_id, **options)
    return load.merge([stage(load, 1, *rows)])


def stage(load: Load, attempt: int, *rows: Row, partition: int = 0) -> Staged:
    """One task copies its rows."""
    return stage_batches(load, attempt, iter([rows]), partition=partition)


def stage_batches(load: Load, attempt: int, batches: Iterator[Sequence[Row]], *, partition: int = 0) -> Staged:
    """One task copies batches, which may do something before they come."""
    said = Staged(partition, attempt, None, load.stage)
    if load.stage is None:
        return said
    columns = (load.columns.rows(_batch(rows))[0] for rows in batches)
    return replace(said, messages=copy_rows(load.options, load.stage, attempt, load.columns.staged, columns))


def stage_by_task(load: Load, attempt: int, *rows: Row, partition: int = 0) -> Staged:
    """One task of Spark stages its rows."""
    context = create_autospec(TaskContext, instance=True)
    context.partitionId.return_value, context.taskAttemptId.return_value = partition, attempt
    context.getLocalProperty.return_value = None
    with patch.object(TaskContext, "get", return_value=context):
        return load.stage_rows([_batch(rows)])


def messages(database: Database) -> list[tuple[str, str]]:
    """Channel and payload of each message."""
    rows = database.rows(
        "select c.name, convert_from(m.content, 'UTF8')::jsonb #>> '{}' as payload"
        " from fq_message m join fq_channel c on c.id = m.channel_id order by 1, 2"
    )
    return [(row.name, row.payload) for row in rows]


def stages(database: Database) -> int:
    """How many staging tables there are."""
    count: int = database.value(
        "select count(*) from pg_class where relkind = 'r' and starts_with(relname, 'fq_stage_')"
    )
    return count


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(list(column), pa.string()) for column in zip(*rows, strict=True)], _SCHEMA.names)
