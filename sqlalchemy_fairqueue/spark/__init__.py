"""Data pipeline: queues as a Spark data source, in both directions (extra ``spark``, PySpark 4.1 or later).

Executors import this package too, so install the package, psycopg and pyarrow there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

# The first use of a name imports its module, together with the dependencies of the module.
_FUNCTIONS: dict[str, str] = {
    "archive": "sqlalchemy_fairqueue.spark.archiving",
    "compact_archive": "sqlalchemy_fairqueue.spark.archiving",
    "read_archive": "sqlalchemy_fairqueue.spark.archiving",
    "changes_setup": "sqlalchemy_fairqueue.spark.reading.slot",
    "history_lag": "sqlalchemy_fairqueue.spark.reading.lag",
    "LagListener": "sqlalchemy_fairqueue.spark.reading.lag",
    "StreamLag": "sqlalchemy_fairqueue.spark.reading.lag",
    "enqueue": "sqlalchemy_fairqueue.spark.writing",
    "Scenario": "sqlalchemy_fairqueue.reporting.simulation.scenarios",
    "report": "sqlalchemy_fairqueue.spark.reporting",
    "replay": "sqlalchemy_fairqueue.spark.reporting",
    "replays": "sqlalchemy_fairqueue.spark.reporting",
}


def register(spark: SparkSession) -> None:
    """Register the data source ``fairqueue`` with a session, classic or Connect.

    The session then redacts options with secrets in plans and logs (``spark.sql.redaction.options.regex``).

    Example:
        >>> register(spark)
        >>> queue.configure_channel(engine, "customer-7", weight=3)
        >>> channels = spark.read.format("fairqueue").options(dsn=dsn, queue="documents", table="channels").load()
        >>> channels.select("channel", "weight").collect()
        [Row(channel='customer-7', weight=3)]
    """
    from sqlalchemy_fairqueue.spark.source import FairQueueSource, prepare  # noqa: PLC0415 - imports Spark

    prepare(spark)
    spark.dataSource.register(FairQueueSource)


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FUNCTIONS[name]), name)
