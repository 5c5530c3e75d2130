"""Writing of frames to queues: executors copy rows to a staging table, and the driver merges them in one transaction.

``columns`` and ``payloads`` turn Arrow batches into rows of the table and find the bad ones; ``stage`` has the table,
``merge`` the transaction, ``rejected_rows`` the rows with bad values. ``load`` puts them together, for ``writers``,
which Spark calls, and for the function ``enqueue``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

# Imported at first use: a reader need not load the writer.
# ruff: noqa: PLC0415


def writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """The writer of ``df.write.format("fairqueue")``. It checks options and columns, and makes the staging table."""
    from sqlalchemy_fairqueue.spark.writing.writers import batch_writer

    return batch_writer(options, schema, overwrite=overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
    """The writer of each micro-batch of ``df.writeStream.format("fairqueue")``."""
    from sqlalchemy_fairqueue.spark.writing.writers import stream_writer as made

    return made(options, schema, overwrite=overwrite)
