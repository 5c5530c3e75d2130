"""Reading queues into Spark: once (history, messages, channels, dead letters) and as a stream (history).

It reads only, and holds no lock that a queue's verb waits for. Making the days of the history and dropping them
(``fq_keep_history``) leaves a day that is being read for its next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.options import read_options
from sqlalchemy_fairqueue.spark.reading.batch import BatchReader
from sqlalchemy_fairqueue.spark.reading.options import ReadOptions
from sqlalchemy_fairqueue.spark.reading.stream import StreamReader
from sqlalchemy_fairqueue.spark.reading.tables import chosen, frame_schema, table_named
from sqlalchemy_fairqueue.spark.reading.workers import spare_modules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

__all__ = ["reader", "schema", "stream_reader"]


def schema(given: Mapping[str, str]) -> StructType:
    """The columns that the options ask for, with their types.

    Raises:
        BadOption: An option is unknown or wrong, or names a column that the table does not have.
    """
    spare_modules()
    options = read_options(ReadOptions, given)
    return frame_schema(table_named(options.table), options.columns)


def reader(given: Mapping[str, str], schema: StructType) -> BatchReader:
    """Read a table once.

    Raises:
        BadOption: An option is unknown or wrong, or meant for streams.
        BadFrame: The schema that the user gave names other columns or types than the table has.
    """
    options = read_options(ReadOptions, given).for_batch()
    return BatchReader(options, chosen(table_named(options.table), schema))


def stream_reader(given: Mapping[str, str], schema: StructType) -> StreamReader:
    """Follow the history.

    Raises:
        BadOption: An option is unknown or wrong, or meant for reading once.
        BadFrame: The schema that the user gave names other columns or types than the history has.
    """
    options = read_options(ReadOptions, given).for_stream()
    return StreamReader(options, chosen(table_named(options.table), schema))
