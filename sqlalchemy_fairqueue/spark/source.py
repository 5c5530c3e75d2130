"""Data source ``fairqueue``: reading and writing are delegated to their packages, and nothing else is done here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

# Each direction is imported when it is used: a reader need not load the writer, nor the reverse.
# ruff: noqa: PLC0415

_REDACTION = "spark.sql.redaction.options.regex"
_SECRETS = "dsn$"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class FairQueueSource(DataSource):
    """A queue as a table: messages to write; history, messages, channels and dead letters to read.

    Spark gives options as strings, with names in any case. They are checked on the driver, before any task starts.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "fairqueue"

    def schema(self) -> StructType | str:
        """The columns of the table that the options name."""
        from sqlalchemy_fairqueue.spark.reading import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a table once."""
        from sqlalchemy_fairqueue.spark.reading import reader

        return reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Follow the history."""
        from sqlalchemy_fairqueue.spark.reading import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Enqueue the rows of a frame, all or none."""
        from sqlalchemy_fairqueue.spark.writing import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """Enqueue the rows of each micro-batch, exactly once."""
        from sqlalchemy_fairqueue.spark.writing import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)


def hide_secrets(spark: SparkSession) -> None:
    """Have the session redact ``dsn`` wherever it shows options: plans, logs, the user interface."""
    pattern = str(spark.conf.get(_REDACTION, "") or "")
    if _SECRETS not in pattern:
        spark.conf.set(_REDACTION, f"{pattern}|{_SECRETS}" if pattern else f"(?i){_SECRETS}")


def push_filters(spark: SparkSession) -> None:
    """Have the session offer filters to Python data sources; without, Spark refuses those that can evaluate some."""
    spark.conf.set(_PUSHDOWN, "true")
