"""The data source ``fairqueue``, which parses options and makes the readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sqlalchemy_fairqueue.spark.executors import freeze_modules
from sqlalchemy_fairqueue.spark.options import ReadOptions, read_options
from sqlalchemy_fairqueue.spark.reading.change_stream import ChangeReader
from sqlalchemy_fairqueue.spark.reading.readers import BatchReader, StreamReader
from sqlalchemy_fairqueue.spark.reading.tables import frame_columns, frame_schema, table_named
from sqlalchemy_fairqueue.spark.writing import BatchWriter, StreamWriter, begin_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


_REDACTION = "spark.sql.redaction.options.regex"
_SECRETS = "dsn$"


class FairQueueSource(DataSource):
    """A queue as a table: messages to write; history, messages, channels, dead letters and changes to read.

    Options are checked on the driver before any task starts: a wrong option raises BadOption, and a user's schema with
    other columns or types than the table raises BadFrame.
    """

    @classmethod
    def name(cls) -> str:
        return "fairqueue"

    def schema(self) -> StructType:
        freeze_modules()
        options = read_options(ReadOptions, self.options)
        return frame_schema(table_named(options.table), options.columns)

    def reader(self, schema: StructType) -> BatchReader:
        options = read_options(ReadOptions, self.options).for_batch()
        return BatchReader(options, frame_columns(table_named(options.table), schema))

    def streamReader(self, schema: StructType) -> StreamReader | ChangeReader:  # noqa: N802 - Spark's name
        options = read_options(ReadOptions, self.options).for_stream()
        kind = ChangeReader if options.follows_changes else StreamReader
        return kind(options, frame_columns(table_named(options.table), schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        return BatchWriter(begin_write(self.options, schema, overwrite=overwrite, stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802
        return StreamWriter(begin_write(self.options, schema, overwrite=overwrite, stream=True))


def prepare(spark: SparkSession) -> None:
    """Let the session redact ``dsn`` wherever it shows options."""
    pattern = str(spark.conf.get(_REDACTION, "") or "")
    if _SECRETS not in pattern:
        spark.conf.set(_REDACTION, f"{pattern}|{_SECRETS}" if pattern else f"(?i){_SECRETS}")
