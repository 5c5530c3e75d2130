"""``spark archive``: an archive of the history in Parquet."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.spark.session import Conf, progress, source_options, spark_session
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, number_column, text_table
from sqlalchemy_fairqueue.formats import plural


def archive_history(
    options: Options,
    *,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder, or a URI that Spark knows.")],
    today: Annotated[bool, typer.Option("--today", help="Archive the present day too, as far as it goes.")] = False,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="Tasks that read a day, each on a connection."),
    ] = None,
    lost: Annotated[
        bool, typer.Option("--accept-loss", help="Go on where days were dropped before they were archived.")
    ] = False,
    conf: Conf = None,
) -> Result:
    """Bring an archive of the history up to date: Parquet, a folder a UTC day, of all queues.

    A day is added whole or not at all. After a run that was killed, the next run adds what is missing.
    """
    with (
        open_installation(options) as installation,
        spark_session("archive", conf) as spark,
        progress("archiving the history"),
    ):
        from sqlalchemy_fairqueue.spark.archiving import archive

        done = archive(
            spark,
            path,
            **source_options(installation),
            today=today,
            num_partitions=partitions,
            fail_on_data_loss=not lost,
        )
    days = [{"day": f"{one.day}", "rows": one.rows, "late": one.is_late} for one in done.days]
    rows = [
        (f"{one.day}", one.rows, "later rows of a day that was there" if one.is_late else None) for one in done.days
    ]
    table = text_table((Column("day"), number_column("attempts"), Column("note", blank=BLANK)), rows)
    return Result(
        {
            "path": path,
            "rows": done.rows,
            "days": days,
            "until": f"{done.until}",
            "lost": [f"{day}" for day in done.lost],
        },
        (
            table if rows else Text("nothing new was to be archived"),
            Text(f"{plural(done.rows, 'attempt')} added to {path}"),
        ),
    )
