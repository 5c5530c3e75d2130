"""Reading of queues into Spark: once (history, messages, channels, dead letters) and as a stream (history, changes).

It writes nothing but the position of a replication slot, and holds no lock that a verb of a queue waits for.
Housekeeping of the history (``fq_keep_history``) skips a day that is being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.executors import freeze_modules
from sqlalchemy_fairqueue.spark.options import read_options
from sqlalchemy_fairqueue.spark.reading.change_stream import ChangeReader
from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
from sqlalchemy_fairqueue.spark.reading.readers import BatchReader, StreamReader
from sqlalchemy_fairqueue.spark.reading.tables import frame_columns, frame_schema, layout_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

__all__ = ["reader", "schema", "stream_reader"]


def schema(given: Mapping[str, str]) -> StructType:
    """The columns that the options name, with their types.

    Raises:
        BadOption: An option is unknown or wrong, or names a column that the table does not have.
    """
    freeze_modules()
    options = read_options(ReadOptions, given)
    return frame_schema(layout_named(options.table), options.columns)


def reader(given: Mapping[str, str], schema: StructType) -> BatchReader:
    """Read a table once.

    Raises:
        BadOption: An option is unknown or wrong, or meant for streams.
        BadFrame: The schema that the user gave has other columns or types than the table.
    """
    options = read_options(ReadOptions, given).for_batch()
    return BatchReader(options, frame_columns(layout_named(options.table), schema))


def stream_reader(given: Mapping[str, str], schema: StructType) -> StreamReader | ChangeReader:
    """Follow the history, or the changes that a replication slot has.

    Raises:
        BadOption: An option is unknown or wrong, or meant for reading once.
        BadFrame: The schema that the user gave has other columns or types than the table.
    """
    options = read_options(ReadOptions, given).for_stream()
    kind = ChangeReader if options.follows_changes else StreamReader
    return kind(options, frame_columns(layout_named(options.table), schema))
