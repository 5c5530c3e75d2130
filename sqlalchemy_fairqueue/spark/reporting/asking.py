"""Queries in Spark SQL, and the frames that are kept between them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Asking(ExitStack):
    """Asks a session; frames that it keeps are given up when the block ends.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark

    def sql(self, text: str, **values: Any) -> DataFrame:
        """A query in which ``{name}`` is a frame and ``:name`` a value."""
        frames = {name: value for name, value in values.items() if hasattr(value, "schema")}
        return self._spark.sql(text, {name: values[name] for name in values.keys() - frames.keys()}, **frames)

    def frame(self, rows: list[tuple[Any, ...]], columns: str) -> DataFrame:
        """A frame of rows."""
        return self._spark.createDataFrame(rows, columns)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Have a frame computed once: on disk, so that memory stays for the queries."""
        from pyspark import StorageLevel  # noqa: PLC0415 - the figures are read without Spark too

        frame.persist(StorageLevel.DISK_ONLY)
        self.callback(frame.unpersist)
        return frame
