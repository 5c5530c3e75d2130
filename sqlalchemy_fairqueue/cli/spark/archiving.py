"""``spark archive``: the history as Parquet."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.printing import counted
from sqlalchemy_fairqueue.cli.sites import site_of
from sqlalchemy_fairqueue.cli.spark.sessions import Conf, place_options, progress, spark_session
from sqlalchemy_fairqueue.cli.tables import NOTHING, Column, listing, number


def archive_history(
    options: Options,
    *,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder, or a URI that Spark knows.")],
    today: Annotated[bool, typer.Option("--today", help="Also the day that is not over, as far as it goes.")] = False,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="Tasks that read a day, each on a connection."),
    ] = None,
    lost: Annotated[
        bool, typer.Option("--accept-loss", help="Go on where days were dropped before they were archived.")
    ] = False,
    conf: Conf = None,
) -> Answer:
    """Bring an archive of the history up to date: Parquet, a folder a UTC day, of all queues.

    A day is added whole or not at all; a run that was killed is made good by the next one.
    """
    with site_of(options) as site, spark_session("archive", conf) as spark, progress("archiving the history"):
        from sqlalchemy_fairqueue.spark.archiving import archive  # noqa: PLC0415 - as late as Spark

        done = archive(
            spark, path, **place_options(site), today=today, num_partitions=partitions, fail_on_data_loss=not lost
        )
    days = [{"day": f"{one.day}", "rows": one.rows, "late": one.is_late} for one in done.days]
    rows = [
        (f"{one.day}", one.rows, "later rows of a day that was there" if one.is_late else None) for one in done.days
    ]
    shown = listing((Column("day"), number("attempts"), Column("note", silent=NOTHING)), rows)
    return Answer(
        {
            "path": path,
            "rows": done.rows,
            "days": days,
            "until": f"{done.until}",
            "lost": [f"{day}" for day in done.lost],
        },
        (
            shown if rows else Text("nothing new was to be archived"),
            Text(f"{counted(done.rows, 'attempt')} added to {path}"),
        ),
    )
