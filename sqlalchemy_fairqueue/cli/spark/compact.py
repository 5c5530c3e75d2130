"""``spark compact``: the files of each day of an archive joined."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.spark.session import Conf, progress, source_options, spark_session
from sqlalchemy_fairqueue.cli.tables import Column, number_column, text_table
from sqlalchemy_fairqueue.formats import plural


def compact_files(
    options: Options,
    *,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The folder of an archive, or a URI that Spark knows.")],
    min_files: Annotated[
        int, typer.Option("--min-files", min=2, metavar="N", help="The least number of files of a day that are joined.")
    ] = 2,
    conf: Conf = None,
) -> Result:
    """Join the files of each day of an archive that has several into one.

    A run that is killed loses and doubles nothing: the next run, of this command or of archive, cleans up.
    """
    with (
        open_installation(options) as installation,
        spark_session("compact", conf) as spark,
        progress("joining files"),
    ):
        from sqlalchemy_fairqueue.spark.archiving import compact_archive

        done = compact_archive(spark, path, **source_options(installation), min_files=min_files)
    days = [{"day": f"{one.day}", "rows": one.rows, "files": one.files} for one in done]
    table = text_table(
        (Column("day"), number_column("attempts"), number_column("files before")),
        [(f"{one.day}", one.rows, one.files) for one in done],
    )
    return Result(
        {"path": path, "days": days},
        (table if done else Text(f"no day has {plural(min_files, 'file')} or more"), Text(f"{path} is compact")),
    )
