"""Enqueuing frames: executors copy rows into a staging table, the driver merges what counts in one transaction.

``columns`` and ``contents`` turn Arrow batches into rows of the table and tell the bad ones; ``staging`` has the table,
``merging`` the transaction, ``rejects`` the rows that were kept back; ``load`` puts them together, and ``sinks`` and
``enqueuing`` are its faces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

# Imported at first use: whoever asks for another direction need not load pyarrow.
# ruff: noqa: PLC0415


def writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """What ``df.write.format("fairqueue")`` writes by. Checks options and columns, and makes the staging table."""
    from sqlalchemy_fairqueue.spark.writing.sinks import batch_writer

    return batch_writer(options, schema, overwrite=overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
    """What ``df.writeStream.format("fairqueue")`` writes each micro-batch by."""
    from sqlalchemy_fairqueue.spark.writing.sinks import stream_writer as made

    return made(options, schema, overwrite=overwrite)
