"""``report --engine spark``: the same report by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.spark.history import history_of, settings_of
from sqlalchemy_fairqueue.cli.spark.session import progress, spark_session

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy_fairqueue.cli.options import Options
    from sqlalchemy_fairqueue.reporting.reports import Report


def report_by_spark(
    options: Options, archive: str | None, times: tuple[datetime | None, datetime | None], arguments: dict[str, Any]
) -> Report:
    """Make the report by Spark, with the arguments of ``sqlalchemy_fairqueue.reporting.report``.

    It is of the attempts that ended from the first of *times* up to the second.
    """
    since, until = times
    with spark_session("report", None) as spark, history_of(spark, options, archive) as (history, policies):
        from pyspark.sql import functions as F  # noqa: N812

        from sqlalchemy_fairqueue.spark import report

        narrowed = history
        if since is not None:
            narrowed = narrowed.where(F.col("finished_at") >= F.lit(since))
        if until is not None:
            narrowed = narrowed.where(F.col("finished_at") < F.lit(until))
        with progress("going through the history"):
            made: Report = report(
                narrowed, policies=policies, settings=settings_of(options, archive), replayed=True, **arguments
            )
    return made
