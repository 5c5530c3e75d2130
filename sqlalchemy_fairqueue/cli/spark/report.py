"""``spark report``: the fairness report of a history, as a page."""

# Annotations are read when the program starts, so that they must not be postponed.
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.spark.history import Archive, history_of
from sqlalchemy_fairqueue.cli.spark.session import Conf, progress, spark_session
from sqlalchemy_fairqueue.cli.tables import Column, number_column, text_table
from sqlalchemy_fairqueue.formats import parse_duration
from sqlalchemy_fairqueue.reporting.documents import document_of
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty
from sqlalchemy_fairqueue.reporting.reports import Report

_MAX_CHANNELS = 10
_COLUMNS = (
    Column("queue"), Column("channel"), number_column("attempts"), number_column("denied wait"),
    number_column("mean wait"), number_column("p95 wait"), number_column("longest starvation"),
)  # fmt: skip


def report_history(
    options: Options,
    *,
    archive: Archive = None,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The file of the page.")] = Path(
        "fairness.html"
    ),
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its title.")] = "Fairness report",
    window: Annotated[
        timedelta | None,
        typer.Option(
            "--window", parser=option_parser(parse_duration), metavar="DURATION", help="Width of the windows over time."
        ),
    ] = None,
    conf: Conf = None,
) -> Result:
    """Make a fairness report of a history: waits, fair shares, starvation, limits of every tenant, as an HTML page.

    The history is that of the database, or an archive. Without --queue it is of all queues.
    """
    if not output.parent.is_dir() or output.is_dir():
        raise usage_error(f"--output {str(output)!r} cannot be written; name a file in a folder that is there")
    with (
        spark_session("report", conf) as spark,
        history_of(spark, options, archive) as (history, policies),
        progress("going through the history"),
    ):
        # The session says what to install where Spark is missing.
        from sqlalchemy_fairqueue.spark.reporting import report

        try:
            made = report(history, policies=policies, output=output, title=title, window=window)
        except HistoryEmpty as error:
            raise not_found_error(str(error)) from error
    return _result(made)


def _result(report: Report) -> Result:
    channels = report.figures.channels
    rows = [
        (one.queue, one.channel, one.attempts, one.denied_wait, one.mean_wait, one.wait.p95,
         one.longest_starvation and one.longest_starvation.lasted)
        for one in channels[:_MAX_CHANNELS]
    ]  # fmt: skip
    return Result(
        {
            "output": str(report.path),
            "title": report.title,
            "made_at": report.made_at,
            "queues": [document_of(one, without=("windows",)) for one in report.figures.queues],
            "channels": [document_of(one) for one in channels],
        },
        (Text("channels by denied wait"), text_table(_COLUMNS, rows), Text(f"the report is in {report.path}")),
    )
