"""Queries in Spark SQL, and frames that are persisted between them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkQueries(ExitStack):
    """Runs queries in a session; frames that it persists are released when the block ends.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark

    def sql(self, text: str, **values: Any) -> DataFrame:
        """A query in which ``{name}`` is a frame and ``:name`` a value.

        Spark makes a temporary view of each frame and drops it before this returns. To drop a view unpersists every
        frame of the same plan. So each view gets a plan of its own, by a condition that is always true: the frame stays
        persisted, queries use it, and the optimizer removes the condition.
        """
        from pyspark.sql.functions import lit  # noqa: PLC0415 - the figures can be read without Spark

        always = lit(True)
        frames = {name: value.where(always) for name, value in values.items() if hasattr(value, "schema")}
        return self._spark.sql(text, {name: values[name] for name in values.keys() - frames.keys()}, **frames)

    def frame(self, rows: list[tuple[Any, ...]], columns: str) -> DataFrame:
        """A frame of rows."""
        return self._spark.createDataFrame(rows, columns)

    def persist(self, frame: DataFrame) -> DataFrame:
        """Compute a frame once and keep it on disk, so that memory stays for the queries."""
        from pyspark import StorageLevel  # noqa: PLC0415 - the figures can be read without Spark

        frame.persist(StorageLevel.DISK_ONLY)
        self.callback(frame.unpersist)
        return frame
