"""``spark report``: who was served how well, as a page."""

# Annotations are read when the program starts, so that they must not be postponed.
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.failures import not_found, usage
from sqlalchemy_fairqueue.cli.options import Options, typed
from sqlalchemy_fairqueue.cli.spark.histories import Archive, history_of
from sqlalchemy_fairqueue.cli.spark.sessions import Conf, progress, spark_session
from sqlalchemy_fairqueue.cli.tables import Column, listing, number
from sqlalchemy_fairqueue.cli.units import duration
from sqlalchemy_fairqueue.spark.reporting.attempts import HistoryEmpty
from sqlalchemy_fairqueue.spark.reporting.figures import Report, document_of

_SHOWN = 10
_COLUMNS = (
    Column("queue"), Column("channel"), number("attempts"), number("denied wait"), number("mean wait"),
    number("p95 wait"), number("longest starvation"),
)  # fmt: skip


def report_history(
    options: Options,
    *,
    archive: Archive = None,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where to write the page.")] = Path(
        "fairness.html"
    ),
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its title.")] = "Fairness report",
    window: Annotated[
        timedelta | None,
        typer.Option("--window", parser=typed(duration), metavar="DURATION", help="Width of the windows over time."),
    ] = None,
    conf: Conf = None,
) -> Answer:
    """Make a fairness report of a history: waits, fair shares, starvation, limits of every tenant, as an HTML page.

    The history is that of the database, or an archive. Without --queue it is of all queues.
    """
    from sqlalchemy_fairqueue.spark.reporting import report  # noqa: PLC0415 - as late as Spark

    if not output.parent.is_dir() or output.is_dir():
        raise usage(f"--output {str(output)!r} cannot be written; name a file in a folder that is there")
    with (
        spark_session("report", conf) as spark,
        history_of(spark, options, archive) as (history, policies),
        progress("going through the history"),
    ):
        try:
            made = report(history, policies=policies, output=output, title=title, window=window)
        except HistoryEmpty as error:
            raise not_found(str(error)) from error
    return _answer(made)


def _answer(made: Report) -> Answer:
    channels = made.figures.channels
    rows = [
        (one.queue, one.channel, one.attempts, one.denied_wait, one.mean_wait, one.wait.p95,
         one.longest_starvation and one.longest_starvation.lasted)
        for one in channels[:_SHOWN]
    ]  # fmt: skip
    return Answer(
        {
            "output": str(made.path),
            "title": made.title,
            "made_at": made.made_at,
            "queues": [document_of(one, without=("windows",)) for one in made.figures.queues],
            "channels": [document_of(one) for one in channels],
        },
        (Text("who suffered most"), listing(_COLUMNS, rows), Text(f"the report is in {made.path}")),
    )
